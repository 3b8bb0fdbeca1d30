package experiment

import (
	"fmt"
	"strings"
	"testing"
)

// TestEqualZonesAreOneLine: thirty regions with the same workers are one line, with the total cost; different ones
// are separate.
func TestEqualZonesAreOneLine(t *testing.T) {
	group := func(region string, n int) FleetRow {
		return FleetRow{Region: region, Zone: "a", Count: n, GPU: "H100", TP: 1, Model: "m", KVTokens: 450_000, PrefillRate: 41_000, Dollars: float64(3 * n)}
	}
	var rows []FleetRow
	for i := range 30 {
		rows = append(rows, group(fmt.Sprintf("r%02d", i), 8))
	}
	rows = append(rows, group("big", 16))
	got := describeFleet(rows)
	if len(got) != 2 || !strings.Contains(got[0], "in each of 30 zones, r00/a to r29/a") || !strings.Contains(got[0], "$720.00") || !strings.Contains(got[1], "16 x H100 m in big/a (") || !strings.Contains(got[1], "$48.00") {
		t.Errorf("it says\n%s", strings.Join(got, "\n"))
	}
	if got := describeFleet(rows[:2]); len(got) != 1 || !strings.Contains(got[0], "in each of r00/a, r01/a (") {
		t.Errorf("of two it says %q", got)
	}
}
