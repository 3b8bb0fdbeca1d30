package global

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// gatewayAskTimeout bounds the query for a region's status; after it the last known status is shown.
const gatewayAskTimeout = time.Second

// gatewayTraceTimeout bounds the query for a request's trace. A gateway asks its local instances for up to a second.
const gatewayTraceTimeout = 3 * time.Second

// statusReporter collects the status of this node and of the gateways for the operator, and explains decisions.
type statusReporter struct {
	name, version string
	startedAt     time.Time // set by Server.Start
	node          *consensus.Node
	parent        *uplink.Parent
	snapshot      *currentSnapshot
	clock         *nodeClock
	planBlock     *atomic.Pointer[planBlock]
	members       *memberAdmin
}

func (s *statusReporter) collectStatus(ctx context.Context) (*admin.Status, error) {
	out := &admin.Status{
		Node: s.name, Role: "global", Version: s.version, StartedAt: s.startedAt,
		Raft: s.describeRaft(), Regions: []admin.RegionStatus{},
	}
	if out.Raft.Leader == "" {
		out.Notes = append(out.Notes, "no leader: answers go on, and nothing can be changed")
	}
	out.Notes = append(out.Notes, s.members.describeSilentVoters(ctx)...)
	if clock := s.clock.Load(); clock != nil && clock.voters > 1 && (clock.wrong || !clock.compared) {
		out.Notes = append(out.Notes, "this node's clock: "+clock.describeClock())
	}
	if text := s.members.describeNonMember(); text != "" {
		out.Notes = append(out.Notes, text)
	}
	if text := describeStopLever(s.node.State()); text != "" {
		out.Notes = append(out.Notes, text)
	}
	v := s.snapshot.Load()
	if v == nil {
		out.Notes = append(out.Notes, "no spec is in force: run `spillway apply -f spec.yaml`")
		return out, nil
	}
	out.SpecVersion, out.PlanEpoch, out.Drains = v.Version, v.state.PlanEpoch, toAdminDrains(v.state.Drains)
	out.Basis = s.describeBasis()[:1] // the age of each region's reports is in its own row
	out.Stage = rolloutStatus(v.state.Rollout, v.state.SpecVersion)
	if v.Plan != nil {
		out.PlanAgeMS = time.Since(v.planSince).Milliseconds()
	}
	switch v.source {
	case specFileState:
		out.Notes = append(out.Notes, "no spec is committed yet: this node answers from its spec file")
	case backupState:
		out.Notes = append(out.Notes, "Raft has not caught up since the restart: this node answers from the last state that it persisted")
	}
	if v.Version != v.state.SpecVersion {
		out.Notes = append(out.Notes, fmt.Sprintf("spec %d cannot be read by this version: %d stays in force here", v.state.SpecVersion, v.Version))
	}
	for r := range v.Regions {
		if x := &v.Regions[r]; x.IsUnreachable() && len(x.ReachedBy) > 0 {
			out.Notes = append(out.Notes, v.Spec.Regions[r].Name+": "+x.DescribeReachability())
		}
	}
	if text := s.planBlock.Load().statusNote(time.Now()); text != "" {
		out.Notes = append(out.Notes, text)
	}
	out.Regions = s.collectRegionStatuses(ctx, v)
	return out, nil
}

func (s *statusReporter) describeRaft() *admin.RaftStatus {
	st, clock := s.node.Status(), s.clock.Load()
	out := &admin.RaftStatus{
		ID: st.ID, State: st.State, Leader: st.Leader, Term: st.Term, Applied: st.AppliedIndex, Commit: st.CommitIndex,
		Last: st.LastIndex, LastContactMS: st.LastContact.Milliseconds(), Voters: []admin.Voter{}, Clock: clock.adminStatus(),
	}
	for _, p := range st.Voters {
		out.Voters = append(out.Voters, admin.Voter{ID: p.ID, Addr: p.Addr, ClockOffsetMS: clock.offsetMS(s.name, p.ID)})
	}
	return out
}

// describeSilentVoters describes voters without contact. The other nodes are queried for how many more voters may be
// lost, as in listMembers.
func (s *memberAdmin) describeSilentVoters(ctx context.Context) []string {
	silent := s.node.SilentVoters()
	if len(silent) == 0 {
		return nil
	}
	return formatSilentVoters(silent, s.node.ProbeMembers(ctx), s.node.AutopilotConfig())
}

func formatSilentVoters(silent []consensus.SilentVoter, all []consensus.MemberStatus, keep consensus.AutopilotConfig) (notes []string) {
	_, able, spare := consensus.CountSpareVoters(all)
	effect := fmt.Sprintf("%d more may be lost before nothing can be changed", spare)
	if spare < 0 {
		effect = fmt.Sprintf("%d can write: nothing can be changed until %d more can", able, -spare)
	}
	for _, x := range silent {
		notes = append(notes, fmt.Sprintf("voter %s had no contact for %s: %s; it %s; if it is gone for good: `spillway members remove %s`",
			x.ID, x.SilentFor.Round(time.Second), effect, keep.DescribeOutlook(all, x.ID), x.ID))
	}
	return notes
}

// collectRegionStatuses queries all regions in parallel.
func (s *statusReporter) collectRegionStatuses(ctx context.Context, v *nodeSnapshot) []admin.RegionStatus {
	ctx, cancel := context.WithTimeout(ctx, gatewayAskTimeout)
	defer cancel()
	out := make([]admin.RegionStatus, len(v.Regions))
	var wg sync.WaitGroup
	for r := range out {
		wg.Go(func() { out[r] = s.collectRegionStatus(ctx, v, r) })
	}
	wg.Wait()
	return out
}

// freshestGateway returns the freshest gateway that is not unreachable.
func freshestGateway(v *nodeSnapshot, region int) (capacity.Path, bool) {
	if g := reachableGateways(v, region); len(g) > 0 {
		return g[0].Summary.Path, true
	}
	return capacity.Path{}, false
}

func knownRegionStatus(v *nodeSnapshot, region int) admin.RegionStatus {
	r, decl := &v.Regions[region], &v.Spec.Regions[region]
	out := admin.RegionStatus{
		Name: decl.Name, State: admin.StateUnknown, Draining: r.Drained,
		Gateways: []admin.GatewayStatus{}, Models: []admin.ModelStatus{}, Zones: []admin.ZoneStatus{},
	}
	if p := decl.Place; p.Lat != 0 || p.Lon != 0 {
		out.Place = &admin.Place{City: p.City, Lat: p.Lat, Lon: p.Lon}
	}
	since := time.Since(v.MadeAt)
	if r.HasReport() {
		out.State, out.AgeMS = r.Group.State.String(), (r.Group.Age + since).Milliseconds()
	}
	for i := range decl.Gateways {
		g := admin.GatewayStatus{Name: decl.Gateways[i].Name, URL: decl.Gateways[i].URL, State: admin.StateUnknown}
		if c, ok := v.Children.FindChild(capacity.Path{Region: decl.Name, Instance: g.Name}); ok {
			g.Endpoint, g.State, g.AgeMS = c.Summary.Endpoint, c.State.String(), (c.Age + since).Milliseconds()
		}
		out.Gateways = append(out.Gateways, g)
	}
	for _, c := range v.Children.Children {
		if p := c.Summary.Path; p.Region == decl.Name && !snapshot.DeclaresGateway(decl, p.Instance) {
			out.Gateways = append(out.Gateways, admin.GatewayStatus{
				Name: p.Instance, Endpoint: c.Summary.Endpoint, State: c.State.String(), AgeMS: (c.Age + since).Milliseconds(),
			})
		}
	}
	if r.HasReport() && r.Group.State == capacity.Unreachable {
		out.Note = fmt.Sprintf("unreachable: its last report is %s old and not shown", (r.Group.Age + since).Round(time.Second))
		return out
	}
	for i := range r.Group.Summary.Models {
		out.Models = append(out.Models, toModelStatus(r.Group.Summary.Models[i]))
	}
	return out
}

func toModelStatus(m *capacity.ModelCapacity) admin.ModelStatus {
	wait, _ := m.PredictWait(spec.Standard)
	return admin.ModelStatus{
		Name: m.Name, Ready: m.Ready, Total: m.Total, Running: m.Running, Queued: m.Queued,
		PrefillRate: m.PrefillRate(), DecodeRate: m.DecodeRate(), Backlog: m.Backlog, KVFree: m.KVFree, KVTotal: m.KVTotal,
		WaitSeconds: wait.Seconds(), Headroom: m.Headroom[spec.Standard],
		Warm: m.Warm, Cold: m.Cold,
	}
}

// describeUplinks returns the uplink sessions with the regions' gateways.
func (s *statusReporter) describeUplinks(context.Context) (*admin.UplinksAnswer, error) {
	return uplink.DescribeSessions(s.name, s.parent, nil), nil
}

// describeBasis lists the sources that this node answers from, with their age.
func (s *statusReporter) describeBasis() []admin.Basis {
	v := s.snapshot.Load()
	if v == nil {
		return []admin.Basis{{What: "plan", From: "none", AgeMS: -1, Detail: "no spec is in force"}}
	}
	plan := admin.NewBasis("plan", "raft", v.planSince, fmt.Sprintf("spec v%d, plan %d", v.Version, v.state.PlanEpoch))
	switch v.source {
	case backupState:
		plan.From, plan.Detail = "disk", plan.Detail+", what was agreed when this node wrote it down"
	case specFileState:
		plan.From, plan.Detail = "file", "the spec file, not agreed by the cluster"
	}
	if v.stale {
		plan.Detail += "; not confirmed by a leader"
	}
	return append([]admin.Basis{plan}, describeCapacityBasis(v, time.Now())...)
}

// describeCapacityBasis lists the age of each region's newest capacity summary.
func describeCapacityBasis(v *nodeSnapshot, now time.Time) []admin.Basis {
	var out []admin.Basis
	for r := range v.Regions {
		b := admin.Basis{What: "capacity", From: "none", AgeMS: -1, Detail: v.Spec.Regions[r].Name + " has never reported"}
		if x := &v.Regions[r]; x.HasReport() {
			b.From, b.AgeMS, b.Detail = "uplink", (x.Group.Age + now.Sub(v.MadeAt)).Milliseconds(), v.Spec.Regions[r].Name+" is "+x.Group.State.String()
			if x.Group.State == capacity.Unreachable {
				b.Detail += "; its last report is used if no other region is left"
			}
		}
		out = append(out, b)
	}
	return out
}

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
				setTraffic(out.Gateways, &own)
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

// setTraffic copies what a gateway reports of its own traffic.
func setTraffic(gateways []admin.GatewayStatus, own *admin.GatewayStatus) {
	for i := range gateways {
		if gateways[i].Name == own.Name {
			gateways[i].InFlight, gateways[i].Traffic = own.InFlight, own.Traffic
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
