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

// maxAsked is how many gateways of one region are asked for a status, the freshest first.
const maxAsked = 16

// regionStatus is what this node knows of a region, with what its gateways say of it added where they answer.
func (s *Server) regionStatus(ctx context.Context, v *View, r int) admin.RegionStatus {
	out := v.known(r)
	asked := v.gatewaysOf(r)
	said := make([]*admin.RegionStatus, len(asked))
	var wg sync.WaitGroup
	for i := range asked {
		wg.Go(func() { said[i] = s.askStatus(ctx, asked[i].Summary.Path) })
	}
	wg.Wait()
	merge(&out, asked, said)
	return out
}

// askStatus is nil when the gateway does not answer, or not with a status.
func (s *Server) askStatus(ctx context.Context, gateway capacity.Path) *admin.RegionStatus {
	b, err := s.parent.Ask(ctx, gateway, admin.AskStatus, nil)
	if err != nil {
		return nil
	}
	out := new(admin.RegionStatus)
	if err := json.Unmarshal(b, out); err != nil {
		return nil
	}
	return out
}

// gatewaysOf are the gateways worth asking: those that are not lost, the freshest first.
func (v *View) gatewaysOf(region int) (out []capacity.Child) {
	for _, c := range v.children.Children {
		if c.Summary.Path.Region == v.spec.Regions[region].Name && c.State != capacity.Lost {
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b capacity.Child) int {
		return cmp.Or(cmp.Compare(a.State, b.State), cmp.Compare(a.Age, b.Age))
	})
	return out[:min(len(out), maxAsked)]
}

// merge adds what the gateways said, asked[i] saying said[i]. Each gateway speaks for itself about what it relays, the
// freshest that answered about the region's models, and about each zone whoever heard of it last.
func merge(out *admin.RegionStatus, asked []capacity.Child, said []*admin.RegionStatus) {
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

// mergeZones takes, of two lists, what is known best of each instance.
func mergeZones(a, b []admin.ZoneStatus) []admin.ZoneStatus {
	out := append([]admin.ZoneStatus{}, a...)
	for i := range b {
		k := slices.IndexFunc(out, func(z admin.ZoneStatus) bool { return z.Name == b[i].Name && z.Instance == b[i].Instance })
		switch {
		case k < 0:
			out = append(out, b[i])
		case better(&b[i], &out[k]):
			out[k] = b[i]
		}
	}
	manned := map[string]bool{}
	for i := range out {
		manned[out[i].Name] = manned[out[i].Name] || out[i].Instance != ""
	}
	// A zone that one gateway has never heard of needs no line when another lists its instances.
	out = slices.DeleteFunc(out, func(z admin.ZoneStatus) bool { return z.Instance == "" && manned[z.Name] })
	slices.SortFunc(out, func(x, y admin.ZoneStatus) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Instance, y.Instance))
	})
	return out
}

// better prefers the fresher statement, and of two alike the one that could name its workers.
func better(a, b *admin.ZoneStatus) bool {
	if x, y := staleness(a.State), staleness(b.State); x != y {
		return x < y
	}
	return b.Note != "" && a.Note == ""
}

func staleness(state string) int {
	switch state {
	case admin.StateFresh:
		return 0
	case admin.StateStale:
		return 1
	case admin.StateLost:
		return 2
	}
	return 3
}
