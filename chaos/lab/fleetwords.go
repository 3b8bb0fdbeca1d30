package lab

import (
	"fmt"
	"strings"
)

// namedZones is how many zones with the same workers are named one by one.
const namedZones = 4

// fleetWords describe a fleet, a line for each kind of group: a planet's thirty regions are mostly alike.
func fleetWords(rows []FleetRow) (out []string) {
	var kinds []FleetRow
	zones := map[FleetRow][]string{}
	for _, r := range rows {
		kind := r
		kind.Region, kind.Zone = "", ""
		if zones[kind] == nil {
			kinds = append(kinds, kind)
		}
		zones[kind] = append(zones[kind], r.Region+"/"+r.Zone)
	}
	for i := range kinds {
		out = append(out, kinds[i].in(zones[kinds[i]]))
	}
	return out
}

// in is a group in words that stands in each of some zones.
func (f *FleetRow) in(zones []string) string {
	slow, where := "", "in "+zones[0]
	if f.Slow > 0 {
		slow = fmt.Sprintf(", %g times as slow", f.Slow)
	}
	switch n := len(zones); {
	case n > namedZones:
		where = fmt.Sprintf("in each of %d zones, %s to %s", n, zones[0], zones[n-1])
	case n > 1:
		where = "in each of " + strings.Join(zones, ", ")
	}
	return fmt.Sprintf("%d x %s %s %s%s (each %s tokens of KV cache, %s tok/s prefill; $%.2f an hour in all)",
		f.Count, gpuName(f.GPU, f.TP), f.Model, where, slow, thousands(f.KV), thousands(int(f.Prefill)), f.Dollars*float64(len(zones)))
}
