package global

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// maxAskedGateways bounds the gateways of one region that are queried for a status, the freshest first.
const maxAskedGateways = 16

// collectRegionStatus returns what this node knows of a region, merged with its gateways' own answers.
func (s *statusReporter) collectRegionStatus(ctx context.Context, v *nodeSnapshot, r int) admin.RegionStatus {
	out := knownRegionStatus(v, r)
	asked := reachableGateways(v, r)
	said := make([]*admin.RegionStatus, len(asked))
	var wg sync.WaitGroup
	for i := range asked {
		wg.Go(func() { said[i] = s.askGatewayStatus(ctx, asked[i].Summary.Path) })
	}
	wg.Wait()
	mergeRegionStatus(&out, asked, said)
	return out
}

// askGatewayStatus returns nil if the gateway does not answer with a status.
func (s *statusReporter) askGatewayStatus(ctx context.Context, gateway capacity.Path) *admin.RegionStatus {
	b, err := s.parent.QueryChild(ctx, gateway, admin.QueryStatus, nil)
	if err != nil {
		return nil
	}
	out := new(admin.RegionStatus)
	if err := json.Unmarshal(b, out); err != nil {
		return nil
	}
	return out
}

// reachableGateways returns the gateways that are not unreachable, the freshest first.
func reachableGateways(v *nodeSnapshot, region int) (out []capacity.ChildSummary) {
	for _, c := range v.Children.Children {
		if c.Summary.Path.Region == v.Spec.Regions[region].Name && c.State != capacity.Unreachable {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b capacity.ChildSummary) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Age, b.Age))
	})
	return out[:min(len(out), maxAskedGateways)]
}

// mergeRegionStatus merges the gateways' answers; said[i] is the answer of asked[i]. Each gateway is the source for
// what it relays itself, the freshest answering gateway for the region's models, and for each zone the gateway with
// its newest report.
func mergeRegionStatus(out *admin.RegionStatus, asked []capacity.ChildSummary, said []*admin.RegionStatus) {
	var silent []string
	answered := false
	for i, g := range said {
		name := asked[i].Summary.Path.Instance
		if g == nil {
			silent = append(silent, name)
			continue
		}
		if !answered {
			out.Models, out.SpecVersion, out.Note = g.Models, g.SpecVersion, g.Note
		}
		answered = true
		out.Zones = mergeZones(out.Zones, g.Zones)
		for _, own := range g.Gateways {
			if own.Name == name {
				setInFlight(out.Gateways, name, own.InFlight)
			}
		}
	}
	switch {
	case !answered && len(asked) > 0:
		out.Note = "did not answer: shown as last reported"
	case len(silent) > 0:
		out.Note = strings.TrimPrefix(out.Note+"; "+strings.Join(silent, ", ")+" did not answer", "; ")
	}
}

func setInFlight(gateways []admin.GatewayStatus, name string, n int64) {
	for i := range gateways {
		if gateways[i].Name == name {
			gateways[i].InFlight = n
		}
	}
}

// mergeZones merges two lists and keeps the better status of each instance.
func mergeZones(a, b []admin.ZoneStatus) []admin.ZoneStatus {
	out := append([]admin.ZoneStatus{}, a...)
	for i := range b {
		k := slices.IndexFunc(out, func(z admin.ZoneStatus) bool { return z.Name == b[i].Name && z.Instance == b[i].Instance })
		switch {
		case k < 0:
			out = append(out, b[i])
		case isBetterStatus(&b[i], &out[k]):
			out[k] = b[i]
		}
	}
	manned := map[string]bool{}
	for i := range out {
		manned[out[i].Name] = manned[out[i].Name] || out[i].Instance != ""
	}
	// A zone without reports at one gateway needs no line if another gateway lists its instances.
	out = slices.DeleteFunc(out, func(z admin.ZoneStatus) bool { return z.Instance == "" && manned[z.Name] })
	slices.SortFunc(out, func(x, y admin.ZoneStatus) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Instance, y.Instance))
	})
	return out
}

// isBetterStatus prefers the fresher status, and of equally fresh ones the one that lists its workers.
func isBetterStatus(a, b *admin.ZoneStatus) bool {
	if x, y := stalenessRank(a.State), stalenessRank(b.State); x != y {
		return x < y
	}
	return b.Note != "" && a.Note == ""
}

func stalenessRank(state string) int {
	switch state {
	case admin.StateFresh:
		return 0
	case admin.StateStale:
		return 1
	case admin.StateUnreachable:
		return 2
	}
	return 3
}
