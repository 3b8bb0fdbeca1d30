package snapshot

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/liveness"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// Inputs are what a snapshot is built from.
type Inputs struct {
	Policy   *SteeringPolicy
	Drains   []PathDrain
	Children *capacity.CapacityView
	Votes    *liveness.Votes
	// Now is the monotonic time, and WallShift what to add to it for the time by which drains end.
	Now       time.Time
	WallShift time.Duration
	// Changes tracks drains and losses across snapshots; nil: they are not tracked.
	Changes *ChangeTracker
	// Settled is true if this node has been up for long enough to take missing summaries for a loss.
	Settled bool
}

// NewSteeringSnapshot joins the inputs. The caller adds RTTs, plan and table before it publishes the snapshot.
func NewSteeringSnapshot(in Inputs) *SteeringSnapshot {
	v := &SteeringSnapshot{
		SteeringPolicy: in.Policy, Geo: in.Policy.PriorGeo, MadeAt: in.Now, WallShift: in.WallShift, Drains: in.Drains, Children: in.Children, Votes: in.Votes,
		Regions: make([]Region, len(in.Policy.Spec.Regions)),
	}
	for _, g := range in.Children.GroupByRegion() {
		if r := v.RegionIndex(g.Path.Region); r >= 0 {
			v.Regions[r].Group = g
		}
	}
	for r := range v.Regions {
		v.deriveRegion(r, in.Settled)
	}
	v.maskRegionsWithoutWorkers()
	if in.Changes != nil {
		v.RecentlyChanged = in.Changes.trackChanges(v.Drained, v.UnreachableByAll, in.Now) || !v.Draining.IsEmpty()
	}
	return v
}

// deriveRegion derives a region's state from its summaries, drains and the votes. A region that this node does not
// reach is excluded from its answers unless another node reaches it.
func (v *SteeringSnapshot) deriveRegion(region int, settled bool) {
	r, decl := &v.Regions[region], &v.Spec.Regions[region]
	v.judgeReachability(region, settled)
	if r.IsUnreachable() {
		v.Unreachable.Add(region)
	}
	if r.IsUnreachableByAll() {
		v.UnreachableByAll.Add(region)
	}
	if r.IsDead() {
		v.Dead.Add(region)
	}
	r.Drained = IsRegionDrained(v.Drains, decl, v.WallTime()) || r.HasReport() && r.Group.Summary.Draining
	if r.Drained {
		v.Drained.Add(region)
	} else if share := drainShare(v.Drains, decl.Name, v.WallTime()); share < 1 {
		v.Draining.Add(region)
		if v.DrainRemaining == nil {
			v.DrainRemaining = make([]uint8, len(v.Regions))
		}
		v.DrainRemaining[region] = uint8(min(math.Ceil(share*256), 255))
	}
	// Shortly after the start, a gateway that has not reported yet counts as healthy: otherwise the answer of a
	// restarted node would shrink to the gateway that reports first.
	r.Addrs = gatewayAddrs(decl, func(gateway string) bool {
		c, ok := v.Children.FindChild(capacity.Path{Region: decl.Name, Instance: gateway})
		return !r.HasReport() || !ok && !settled || ok && c.State != capacity.Unreachable && (!c.Summary.Draining || r.Drained)
	})
	if len(r.Addrs) == 0 {
		r.Addrs = gatewayAddrs(decl, func(string) bool { return true })
	}
	r.Waits = make([]float64, len(v.Spec.Services))
	for s := range r.Waits {
		r.Waits[s], _ = v.ServiceWait(region, s)
	}
}

// ServiceWait returns a region's wait for a service in seconds, weighted by rate, and how many workers are ready for
// it.
func (v *SteeringSnapshot) ServiceWait(region, service int) (wait float64, ready int64) {
	r := &v.Regions[region]
	rate := 0.0
	for i := range r.Group.Summary.Models {
		m := r.Group.Summary.Models[i]
		if only := v.ServiceModels[service]; only != nil && !only[m.Name] {
			continue
		}
		ready += m.Ready
		if w, ok := m.PredictWait(spec.Standard); ok {
			p := float64(m.PrefillRate())
			wait += w.Seconds() * p
			rate += p
		}
	}
	if rate > 0 {
		wait /= rate
	}
	return wait, ready
}

// maskRegionsWithoutWorkers masks, for each service, the regions without a worker for it while another healthy region
// has one. If the plan decides the split, sleeping (warm) workers count as workers: the plan uses them only when
// waking them is sooner than waiting elsewhere, or as a pilot light. The other modes wake no worker while any is
// ready.
func (v *SteeringSnapshot) maskRegionsWithoutWorkers() {
	v.Unavailable = make([]steer.RegionSet, len(v.Spec.Services))
	for s := range v.Unavailable {
		var without steer.RegionSet
		some := false
		for r := range v.Regions {
			_, ready := v.ServiceWait(r, s)
			if v.Regions[r].HasReport() && !v.Regions[r].IsUnreachableByAll() && ready == 0 && !v.mayWakeWorkers(r, s) {
				without.Add(r)
			}
			some = some || ready > 0 && !v.Regions[r].IsUnreachableByAll() && !v.Regions[r].Drained
		}
		v.Unavailable[s] = v.UnreachableByAll
		if some {
			v.Unavailable[s] = v.UnreachableByAll.Union(&without)
		}
	}
}

// mayWakeWorkers reports whether clients of a service may be sent to a region in order to wake its sleeping workers.
func (v *SteeringSnapshot) mayWakeWorkers(region, service int) bool {
	svc := &v.Spec.Services[service]
	planned := svc.Mode == "" || svc.Mode == "latency" || svc.Mode == "failover" && svc.MinWarm > 0
	sum := &v.Regions[region].Group.Summary
	for i := range sum.Models {
		if only := v.ServiceModels[service]; planned && sum.Models[i].Warm > 0 && (only == nil || only[sum.Models[i].Name]) {
			return true
		}
	}
	return false
}

// gatewayAddrs returns the addresses of the region's gateways for which keep is true, each once: gateways may share
// an address, and a record set holds no duplicates (RFC 2181, section 5).
func gatewayAddrs(r *spec.Region, keep func(gateway string) bool) []netip.Addr {
	var out []netip.Addr
	for i := range r.Gateways {
		if !keep(r.Gateways[i].Name) {
			continue
		}
		for _, a := range r.Gateways[i].Addresses {
			if !slices.Contains(out, a) {
				out = append(out, a)
			}
		}
	}
	return out
}

// judgeReachability sets the region's reachability. settled is true if this node has been up for long enough to take
// a missing report for a loss.
func (v *SteeringSnapshot) judgeReachability(region int, settled bool) {
	r, name := &v.Regions[region], v.Spec.Regions[region].Name
	switch reported := r.HasReport(); {
	case !reported && !settled:
		r.State = Unknown
		return
	case reported && r.Group.State == capacity.Stale:
		r.State = Stale
		return
	case reported && r.Group.State != capacity.Unreachable:
		r.State = Reporting
		return
	}
	r.ReachedBy = v.Votes.ReportersOf(name)
	dead, byAll := v.Votes.IsDead(name), len(r.ReachedBy) == 0
	switch {
	case v.Votes.Suppressed.Has(region):
		r.State = SilenceSuppressed
	case dead && byAll:
		r.State = Dead
	case byAll:
		r.State = LostByAll
	case dead:
		r.State = LostByMajority
	default:
		r.State = PeersOnly
	}
}

// PeerState is the state of another region, for the gateways of one.
type PeerState struct {
	Region     string
	Summary    *capacity.Summary
	Age        time.Duration // of the summary
	RTT        time.Duration // between the two regions' gateways; valid if the region of the receiver is known
	RTTSamples int64         // 0: RTT is estimated from distance
	Gateways   []PeerEndpoint
}

// PeerEndpoint is a gateway that takes requests from other regions.
type PeerEndpoint struct{ Name, Endpoint string }

// ListPeers returns the regions other than self. Demand, client networks, RTTs and acknowledgements concern only the
// region itself and are left out.
func (v *SteeringSnapshot) ListPeers(self int, now time.Time) []PeerState {
	var out []PeerState
	for r := range v.Regions {
		x, decl := &v.Regions[r], &v.Spec.Regions[r]
		if r == self || !x.HasReport() {
			continue
		}
		sum := x.Group.Summary
		sum.Demand, sum.Acks, sum.RTTs, sum.Networks, sum.Outcomes = nil, nil, nil, nil, nil
		sum.TenantUsages, sum.HeldLeases = nil, capacity.HeldLeases{}
		sum.Draining = sum.Draining || x.Drained
		p := PeerState{Region: decl.Name, Summary: &sum, Age: x.Group.Age + now.Sub(v.MadeAt)}
		if self >= 0 {
			p.RTT, p.RTTSamples = v.RegionRTT(self, r)
		}
		for _, c := range v.Children.Children {
			if c.Summary.Path.Region == decl.Name && DeclaresGateway(decl, c.Summary.Path.Instance) && c.State != capacity.Unreachable && c.Summary.Endpoint != "" {
				p.Gateways = append(p.Gateways, PeerEndpoint{Name: c.Summary.Path.Instance, Endpoint: c.Summary.Endpoint})
			}
		}
		out = append(out, p)
	}
	return out
}

// DeclaresGateway reports whether the spec lists the gateway: a gateway that runs and is not listed gets no clients.
func DeclaresGateway(r *spec.Region, gateway string) bool {
	return slices.ContainsFunc(r.Gateways, func(g spec.Gateway) bool { return g.Name == gateway })
}
