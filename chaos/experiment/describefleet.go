package experiment

import (
	"fmt"
	"strings"
)

// maxNamedZones is how many zones with the same workers are listed by name.
const maxNamedZones = 4

// describeFleet describes a fleet, one line for each kind of group: the regions of a large fleet are mostly alike.
func describeFleet(rows []FleetRow) (out []string) {
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
		out = append(out, kinds[i].describeIn(zones[kinds[i]]))
	}
	return out
}

// describeIn describes a group that is in each of some zones.
func (f *FleetRow) describeIn(zones []string) string {
	slow, where := "", "in "+zones[0]
	if f.Slowdown > 0 {
		slow = fmt.Sprintf(", %g times as slow", f.Slowdown)
	}
	switch n := len(zones); {
	case n > maxNamedZones:
		where = fmt.Sprintf("in each of %d zones, %s to %s", n, zones[0], zones[n-1])
	case n > 1:
		where = "in each of " + strings.Join(zones, ", ")
	}
	return fmt.Sprintf("%d x %s %s %s%s (each %s tokens of KV cache, %s tok/s prefill; $%.2f an hour in all)",
		f.Count, gpuName(f.GPU, f.TP), f.Model, where, slow, formatThousands(f.KVTokens), formatThousands(int(f.PrefillRate)), f.Dollars*float64(len(zones)))
}
