package sim

import (
	"net/netip"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/liveness"
	"github.com/spillway-lb/spillway/global/planinput"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// peerReportInterval is how often a global node reports to the others, as consensus gossips.
const peerReportInterval = 250 * time.Millisecond

// globalCore drives what a global node decides with: its snapshots, the reports of other nodes, and the planner. Agreed
// state is in force when the simulation sets it. Equal calls give equal decisions.
type globalCore struct {
	name      string
	voters    []string
	policy    *snapshot.SteeringPolicy
	startedAt time.Time

	drains    []uplink.ActiveDrain
	index     uint64 // of the agreed state
	plan      *steer.Plan
	planEpoch uint64

	summaries   *capacity.SummaryTable
	peerReports liveness.PeerReports
	planInput   *planinput.Preparer
	changes     snapshot.ChangeTracker
	rtts        *snapshot.RTTEstimates
	table       *steer.Table
	current     *snapshot.SteeringSnapshot
}

// newGlobalCore returns a node without any reports. voters are all nodes of the global tier, including this one, and
// clients the locations where clients may be.
func newGlobalCore(name string, voters []string, sp *spec.Spec, clients []geo.Location, now time.Time) *globalCore {
	var cells []geo.Cell
	for _, p := range clients {
		id := geo.CellAt(p)
		cells = append(cells, geo.Cell{ID: id, Name: geo.CellName(id), Location: p})
	}
	f := snapshot.NewPolicy(1, nil, sp, cells)
	c := &globalCore{
		name: name, voters: voters, policy: f, startedAt: now, summaries: capacity.NewSummaryTable(capacity.FreshnessThresholds{}),
		planInput: planinput.NewPreparer(), table: steer.CompileTable(sp, f.PriorGeo, nil),
	}
	c.rtts = snapshot.EstimateRTTs(f, c.summaries.BuildView(now), 0, now)
	c.refreshSnapshot(now)
	return c
}

// setDrains puts drains in force.
func (c *globalCore) setDrains(drains []uplink.ActiveDrain) {
	c.drains = drains
	c.index++
}

// isSettled reports whether the node takes a missing summary for a loss.
func (c *globalCore) isSettled(now time.Time) bool {
	return now.Sub(c.startedAt) > snapshot.StartupGrace
}

// encodePeerReport returns the node's report to the other nodes on which regions it reaches.
func (c *globalCore) encodePeerReport(now time.Time) []byte {
	t := liveness.NewPeerReport(c.summaries.BuildView(now), c.isSettled(now))
	return t.EncodeReport()
}

// refreshSnapshot builds the next snapshot.
func (c *globalCore) refreshSnapshot(now time.Time) {
	children := c.summaries.BuildView(now)
	if now.Sub(c.rtts.MadeAt) >= snapshot.RTTRefreshInterval {
		c.rtts = snapshot.EstimateRTTs(c.policy, children, 0, now)
	}
	in := snapshot.Inputs{
		Policy: c.policy, Children: children, Now: now, Changes: &c.changes, Settled: c.isSettled(now),
		Votes: &liveness.Votes{Self: c.name, Voters: c.voters, Reports: c.peerReports.FreshReports(now)},
	}
	for _, d := range c.drains {
		in.Drains = append(in.Drains, snapshot.PathDrain{Path: d.Path, Until: d.Until, At: d.Start, Over: d.Over})
	}
	c.current = snapshot.NewSteeringSnapshot(in)
	c.current.SetRTTs(c.rtts)
	c.current.Plan, c.current.Table = c.plan, c.table
}

// makePlan solves once. It returns nil if the plan in force is as good.
func (c *globalCore) makePlan(now time.Time) *steer.Plan {
	if !c.current.IsSettled(now.Sub(c.startedAt)) {
		return nil
	}
	if region, _ := c.current.FindPeerOnlyRegion(); region != "" {
		return nil
	}
	in, _ := c.planInput.PrepareInput(c.current, c.peerReports.AllReadPlanVersion(steer.PlanVersion, c.name, c.voters), now)
	res := steer.SolvePlan(in)
	if !res.Publish {
		return nil
	}
	return res.Plan
}

// applyPlan puts the plan of an epoch in force, as agreement would.
func (c *globalCore) applyPlan(p *steer.Plan, epoch uint64, now time.Time) {
	c.index += epoch - c.planEpoch
	c.plan, c.planEpoch = p, epoch
	c.table = steer.RecompileTable(c.table, c.policy.Spec, c.policy.PriorGeo, p)
	c.refreshSnapshot(now)
}

// buildDirective returns the directive for the gateways of a region.
func (c *globalCore) buildDirective(region string, now time.Time) *uplink.Directive {
	d := &uplink.Directive{Index: c.index, SpecVersion: 1, PlanEpoch: c.planEpoch, Drains: c.drains}
	for _, p := range c.current.ListPeers(c.current.RegionIndex(region), now) {
		x := uplink.PeerRegion{Region: p.Region, Summary: p.Summary, Age: p.Age, RTT: p.RTT, RTTSamples: p.RTTSamples}
		for _, g := range p.Gateways {
			x.Gateways = append(x.Gateways, uplink.PeerGateway{Name: g.Name, Endpoint: g.Endpoint})
		}
		d.Peers = append(d.Peers, x)
	}
	return d
}

// pickRegion returns the region for a client at a location, as its index in the spec, and the TTL of the answer.
func (c *globalCore) pickRegion(service int, from geo.Location, client netip.Addr) (region int, ttl time.Duration) {
	choice := c.current.PickRegion(service, geo.CellAt(from), client, steer.RegionSet{})
	return choice.Region, time.Duration(c.current.AnswerTTL(service)) * time.Second
}

// gatewayAddrs returns the addresses of a region's gateways that an answer lists: of the healthy ones, or of all.
func (c *globalCore) gatewayAddrs(region int) []netip.Addr { return c.current.Regions[region].Addrs }

// globalNode is one node of the global tier. It fails with its region, and receives what the network delivers.
type globalNode struct {
	index       int32 // index in the fleet
	region      *regionState
	core        *globalCore
	planEpoch   uint64 // of the plan in force at it
	deathCauses int    // active causes of its own death
}

// defaultNodes is the default number of global nodes.
const defaultNodes = 3

// nodeName is the name of the node's region: there is one node per region.
func (n *globalNode) nodeName() string { return n.region.name }
