package step

import (
	"strings"
	"testing"
)

func TestPrint(t *testing.T) {
	var b strings.Builder
	lab := Row{"lab", []*Result{{Near: Measure{Over: 10}, Far: 0.6, Sent: 100, Shed: 1}, {Near: Measure{Over: 20}, Far: 0.6, Sent: 100, Shed: 1}}}
	if err := Print(&b, []Row{lab, {"live", []*Result{{Live: true, Near: Measure{Over: 5}, Far: 0.6}}}}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "15 (10-20)") || !strings.Contains(lines[1], " 0.60 ") || !strings.Contains(lines[1], "1.00%") {
		t.Errorf("\n%s", b.String())
	}
	if f := strings.Fields(lines[2]); f[1] != "5" || f[7] != "-" || f[8] != "-" {
		t.Errorf("of a planet that runs: %q", f)
	}
}
