package global

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/spec"
)

// maxReportedModels bounds the models whose share a drain reports. Those with the largest shares are kept: they are
// the ones that a rule would refuse.
const maxReportedModels = 64

// readDrainRules returns the safety rules of a spec at a time. The replicated state calls it, so it depends on its
// arguments only.
func readDrainRules(text []byte, at time.Time) consensus.DrainRules {
	sp, err := specCache.decodeText(text)
	if err != nil {
		return consensus.DrainRules{}
	}
	out := consensus.DrainRules{MinRegions: sp.Safety.MinRegions, MinCapacityShare: sp.Safety.MinCapacityPPM()}
	if w := sp.Safety.FindBlockedWindow(at); w != nil {
		out.BlockedBy = "safety.blocked_windows forbids drains now: " + w.String()
	}
	if out.MinRegions > 0 {
		for i := range sp.Regions {
			out.Regions = append(out.Regions, consensus.RuledRegion{Name: sp.Regions[i].Name, Zones: sp.Regions[i].Zones})
		}
	}
	return out
}

// measureDrainTakes returns the share of each model's capacity that a path has, apart from what its region no longer
// reports because it is drained. below is the region's report on its zones and workers; nil: not requested, or no
// answer.
func measureDrainTakes(v *nodeSnapshot, path string, below *admin.RegionStatus) (out []consensus.ModelShare) {
	region, zone, _, _ := spec.ParseDrain(path)
	x := &v.Regions[v.RegionIndex(region)]
	if !x.HasReport() || x.IsUnreachableByAll() {
		return nil
	}
	for i := range v.Spec.Models {
		name := v.Spec.Models[i].Name
		sum := x.Group.Summary.FindModel(name)
		if sum == nil {
			continue
		}
		rate := float64(sum.PrefillRate())
		if zone != "" {
			rate *= float64(countLeavingWorkers(below, []snapshot.PathDrain{{Path: path}}, name, v.WallTime())) / float64(max(sum.Ready, 1))
		}
		if share := int64(math.Round(1e6 * rate / max(totalModelRate(v, name), 1))); share > 0 {
			out = append(out, consensus.ModelShare{Model: name, Share: min(share, 1e6)})
		}
	}
	slices.SortFunc(out, func(a, b consensus.ModelShare) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Model, b.Model))
	})
	return out[:min(len(out), maxReportedModels)]
}

// listUnserving returns the regions that serve no client now, whether drained by their gateways or unreachable.
func listUnserving(v *nodeSnapshot) (names []string) {
	for r := range v.Regions {
		if x := &v.Regions[r]; x.Drained || x.IsUnreachableByAll() {
			names = append(names, v.Spec.Regions[r].Name)
		}
	}
	return names
}

// safetyAdmin shows and moves the stop lever for the operator.
type safetyAdmin struct {
	log  *slog.Logger
	node *consensus.Node
}

func (s *safetyAdmin) showStopLever(context.Context) (*admin.StopLeverAnswer, error) {
	l := s.node.State().StopLever
	if l == nil {
		return &admin.StopLeverAnswer{}, nil
	}
	return &admin.StopLeverAnswer{Stopped: true, Reason: l.Reason, Actor: l.Actor, At: l.At}, nil
}

func (s *safetyAdmin) setStopLever(ctx context.Context, r admin.StopLeverRequest, actor string) (*admin.StopLeverAnswer, error) {
	if err := s.node.SetStopLever(ctx, r.Stop, consensus.Attribution{Actor: actor, Reason: r.Reason}); err != nil {
		return nil, toAdminError(err)
	}
	s.log.Info("stop lever moved", "stop", r.Stop, "actor", actor, "reason", r.Reason)
	return s.showStopLever(ctx)
}

// describeStopLever is a note for status; empty while drains are allowed.
func describeStopLever(st *consensus.State) string {
	if st.StopLever == nil {
		return ""
	}
	return fmt.Sprintf("drills and drains are stopped by %s: %s: `spillway drill allow --fleet` allows them again", st.StopLever.Actor, st.StopLever.Reason)
}
