package experiment

import (
	"strings"
	"testing"
)

func TestPrintSteps(t *testing.T) {
	var b strings.Builder
	lab := StepRow{"lab", []*StepResult{{First: StepMeasure{OverSeconds: 10}, MaxOther: 0.6, Sent: 100, Shed: 1}, {First: StepMeasure{OverSeconds: 20}, MaxOther: 0.6, Sent: 100, Shed: 1}}}
	if err := PrintSteps(&b, []StepRow{lab, {"live", []*StepResult{{OnNetwork: true, First: StepMeasure{OverSeconds: 5}, MaxOther: 0.6}}}}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "15 (10-20)") || !strings.Contains(lines[1], " 0.60 ") || !strings.Contains(lines[1], "1.00%") {
		t.Errorf("\n%s", b.String())
	}
	if f := strings.Fields(lines[2]); f[1] != "5" || f[7] != "-" || f[8] != "-" {
		t.Errorf("of a running fleet: %q", f)
	}
}
