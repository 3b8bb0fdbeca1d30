package global

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// askBound is how long a region may take to describe itself before it is shown as last known.
const askBound = time.Second

func (s *Server) status(ctx context.Context) (*admin.Status, error) {
	out := &admin.Status{
		Node: s.cfg.Name, Role: "global", Version: s.cfg.Version, StartedAt: s.started,
		Raft: s.raftStatus(), Regions: []admin.RegionStatus{},
	}
	if out.Raft.Leader == "" {
		out.Notes = append(out.Notes, "no leader: answers go on, and nothing can be changed")
	}
	out.Notes = append(out.Notes, s.silentVoters(len(out.Raft.Voters))...)
	if text := s.outside(); text != "" {
		out.Notes = append(out.Notes, text)
	}
	v := s.view.Load()
	if v == nil {
		out.Notes = append(out.Notes, "no spec is in force: run spillway apply")
		return out, nil
	}
	out.SpecVersion, out.PlanEpoch, out.Drains = v.version, v.state.PlanEpoch, drainList(v.state.Drains)
	out.Basis = s.basis()[:1] // how old each region's news is, its row says
	out.Stage = stageStatus(v.state.Stage, v.state.SpecVersion)
	if v.plan != nil {
		out.PlanAgeMS = time.Since(v.planSince).Milliseconds()
	}
	switch v.from {
	case firstState:
		out.Notes = append(out.Notes, "nothing is agreed yet: answering from the spec file")
	case savedState:
		out.Notes = append(out.Notes, "Raft is not as far again as it was: answering from the last state that was written down")
	}
	if v.version != v.state.SpecVersion {
		out.Notes = append(out.Notes, fmt.Sprintf("spec %d cannot be read by this version: %d stays in force here", v.state.SpecVersion, v.version))
	}
	for r := range v.regions {
		if x := &v.regions[r]; x.unheard && len(x.heardBy) > 0 {
			out.Notes = append(out.Notes, v.spec.Regions[r].Name+": "+x.hearsay())
		}
	}
	if text := s.planBlock.Load().note(time.Now()); text != "" {
		out.Notes = append(out.Notes, text)
	}
	out.Regions = s.askRegions(ctx, v)
	return out, nil
}

func (s *Server) raftStatus() *admin.RaftStatus {
	st := s.node.Status()
	out := &admin.RaftStatus{
		ID: st.ID, State: st.State, Leader: st.Leader, Term: st.Term, Applied: st.Applied, Commit: st.Commit,
		Last: st.Last, LastContactMS: st.LastContact.Milliseconds(), Voters: []admin.Voter{},
	}
	for _, p := range st.Voters {
		out.Voters = append(out.Voters, admin.Voter{ID: p.ID, Addr: p.Addr})
	}
	return out
}

// silentVoters names voters that are not heard of: each lowers how many more may be lost.
func (s *Server) silentVoters(voters int) (notes []string) {
	silent := s.node.Silent()
	if len(silent) == 0 {
		return nil
	}
	all := s.node.Known()
	for _, x := range silent {
		notes = append(notes, fmt.Sprintf("%s has a vote and was not heard of for %s: %d more may be lost before nothing can be changed; it %s; if it is gone for good: `spillway members remove %s`",
			x.ID, x.For.Round(time.Second), max(0, (voters-1)/2-len(silent)), s.node.Keeping().Outlook(all, x.ID), x.ID))
	}
	return notes
}

// askRegions asks all regions at once.
func (s *Server) askRegions(ctx context.Context, v *View) []admin.RegionStatus {
	ctx, cancel := context.WithTimeout(ctx, askBound)
	defer cancel()
	out := make([]admin.RegionStatus, len(v.regions))
	var wg sync.WaitGroup
	for r := range out {
		wg.Go(func() { out[r] = s.regionStatus(ctx, v, r) })
	}
	wg.Wait()
	return out
}

// spokesman is the gateway to ask: the freshest that is not lost.
func (v *View) spokesman(region int) (capacity.Path, bool) {
	if g := v.gatewaysOf(region); len(g) > 0 {
		return g[0].Summary.Path, true
	}
	return capacity.Path{}, false
}

func (v *View) known(region int) admin.RegionStatus {
	r, decl := &v.regions[region], &v.spec.Regions[region]
	out := admin.RegionStatus{
		Name: decl.Name, State: admin.StateUnknown, Draining: r.drained,
		Gateways: []admin.GatewayStatus{}, Models: []admin.ModelStatus{}, Zones: []admin.ZoneStatus{},
	}
	since := time.Since(v.made)
	if r.heard {
		out.State, out.AgeMS = r.group.State.String(), (r.group.Age + since).Milliseconds()
	}
	for i := range decl.Gateways {
		g := admin.GatewayStatus{Name: decl.Gateways[i].Name, URL: decl.Gateways[i].URL, State: admin.StateUnknown}
		if c, ok := v.children.Child(capacity.Path{Region: decl.Name, Instance: g.Name}); ok {
			g.Endpoint, g.State, g.AgeMS = c.Summary.Endpoint, c.State.String(), (c.Age + since).Milliseconds()
		}
		out.Gateways = append(out.Gateways, g)
	}
	for _, c := range v.children.Children {
		if p := c.Summary.Path; p.Region == decl.Name && !declares(decl, p.Instance) {
			out.Gateways = append(out.Gateways, admin.GatewayStatus{
				Name: p.Instance, Endpoint: c.Summary.Endpoint, State: c.State.String(), AgeMS: (c.Age + since).Milliseconds(),
			})
		}
	}
	if r.heard && r.group.State == capacity.Lost {
		out.Note = fmt.Sprintf("unreachable: its last report is %s old and not shown", (r.group.Age + since).Round(time.Second))
		return out
	}
	for i := range r.group.Summary.Models {
		out.Models = append(out.Models, modelStatus(&r.group.Summary.Models[i]))
	}
	return out
}

// declares reports whether the spec lists the gateway: one that runs and is not listed gets no clients.
func declares(r *spec.Region, gateway string) bool {
	return slices.ContainsFunc(r.Gateways, func(g spec.Gateway) bool { return g.Name == gateway })
}

func modelStatus(m *capacity.Model) admin.ModelStatus {
	wait, _ := m.Wait(spec.Standard)
	return admin.ModelStatus{
		Name: m.Name, Ready: m.Ready, Total: m.Total, Running: m.Running, Queued: m.Queued,
		PrefillRate: m.PrefillRate(), DecodeRate: m.DecodeRate(), Backlog: m.Backlog, KVFree: m.KVFree, KVTotal: m.KVTotal,
		WaitSeconds: wait.Seconds(), Headroom: m.Headroom[spec.Standard],
		Warm: m.Warm, Cold: m.Cold,
	}
}
