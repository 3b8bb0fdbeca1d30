package routing

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// ReceiveSummary records a summary of a local instance and credits the tickets that it acknowledges. It returns false
// for a summary that is not newer than the last one. Call Rebuild afterwards.
func (r *Router) ReceiveSummary(s *capacity.Summary, now time.Time) bool {
	if !r.summaries.PutSummary(s, now) {
		return false
	}
	for i := range s.Acks {
		if a := &s.Acks[i]; a.Parent == r.cfg.Name && a.Boot == r.cfg.Boot {
			r.ledger.AckThrough(s.Path, a.Ticket)
		}
	}
	return true
}

// MarkUnreachable marks a local instance whose session has ended. Call Rebuild afterwards.
func (r *Router) MarkUnreachable(p capacity.Path) { r.summaries.MarkUnreachable(p) }

// ForgetLocal deletes the summary of a local instance that restarts with a lower boot number.
func (r *Router) ForgetLocal(p capacity.Path) { r.summaries.RemoveChild(p) }

// SuspectEndpoint counts an endpoint as unreachable for a while after a failed connection, which is noticed earlier
// than missing summaries. Call Rebuild afterwards.
func (r *Router) SuspectEndpoint(endpoint string, now time.Time) {
	d := suspectFor
	if r.view.isUnreported(endpoint) {
		d = suspectForUnreported
	}
	if until := now.Add(d); until.After(r.suspects[endpoint]) { // a second failure must not shorten the first suspicion
		r.suspects[endpoint] = until
	}
}

func (r *Router) isSuspect(endpoint string) bool {
	_, suspect := r.suspects[endpoint]
	return suspect
}

// ApplyPolicy replaces the policy. Call Rebuild afterwards.
func (r *Router) ApplyPolicy(p Policy, now time.Time) {
	r.policy = p
	r.creditSpills(now)
}

// View returns the view that routing uses. It is immutable.
func (r *Router) View() *RoutingView { return r.view }

// Rebuild builds the view from the policy, the summaries and the suspected endpoints. Call it when one of them has
// changed, and regularly, because an instance without new summaries becomes unreachable by the clock.
func (r *Router) Rebuild(now time.Time) *RoutingView {
	for endpoint, until := range r.suspects {
		if !now.Before(until) {
			delete(r.suspects, endpoint)
		}
	}
	region := r.policy.Region
	children := r.summaries.BuildView(now).Children
	r.reachable = make(map[string]bool, len(children))
	v := &RoutingView{
		Locals: make([]LocalInstance, 0, len(children)), Drained: r.policy.IsDrained(region, "", now),
		Live: collectLiveInstances(children),
	}
	for _, c := range children {
		s := c.Summary
		if c.State == capacity.Unreachable && c.Age > forgetAfter || !r.policy.HasZone(s.Path.Zone) {
			r.summaries.RemoveChild(s.Path)
			r.ledger.ForgetPath(s.Path)
			continue
		}
		if c.State != capacity.Unreachable {
			r.reachable[s.Endpoint] = true
		}
		l := LocalInstance{Summary: s, State: c.State, Age: c.Age, Weight: r.policy.ZoneWeights[s.Path.Zone]}
		if r.isSuspect(s.Endpoint) {
			l.State = capacity.Unreachable
		}
		l.SetDrainShare(r.policy.DrainShare(region, s.Path.Zone, now))
		v.Locals = append(v.Locals, l)
	}
	v.Peers = r.buildPeers(now)
	r.view = v
	return v
}

// collectLiveInstances collects the live instances of each zone by their summaries.
func collectLiveInstances(children []capacity.ChildSummary) map[string][]PeerGateway {
	live := map[string][]PeerGateway{}
	for i := range children {
		s := children[i].Summary
		if at := live[s.Path.Zone]; children[i].State != capacity.Unreachable && len(at) < maxLiveInstances {
			live[s.Path.Zone] = append(at, PeerGateway{Name: s.Path.Instance, Endpoint: s.Endpoint})
		}
	}
	return live
}

func (r *Router) buildPeers(now time.Time) []PeerRegion {
	peers := make([]PeerRegion, 0, len(r.policy.Peers))
	since := max(now.Sub(r.policy.ReceivedAt), 0)
	for i := range r.policy.Peers {
		p := &r.policy.Peers[i]
		age := p.Age + since
		out := PeerRegion{
			Region: p.Region, Summary: p.Summary, Age: age, State: peerFreshness(age, r.policy.MaxHeadroomAge), RTT: p.RTT, Residency: p.Residency,
			Drained: r.policy.DrainShare(p.Region, "", now) < 1, Gateways: r.excludeSuspects(p.Gateways),
		}
		if out.State != capacity.Fresh && r.isUnreported(p, now) {
			out.State, out.Unreported = capacity.Stale, true
		}
		peers = append(peers, out)
	}
	return peers
}

// isUnreported reports whether a peer's summary is old only because the global tier is silent, which is no evidence
// about the peer. If connections to all of its gateways failed lately, the peer may be down itself.
func (r *Router) isUnreported(p *PeerReport, now time.Time) bool {
	silent, fresh := now.Sub(r.policy.ReceivedAt), r.policy.MaxHeadroomAge
	if r.policy.FromDisk || p.Age >= fresh || silent < max(fresh, globalSilentAfter) || silent > maxUnreportedPeerAge {
		return false
	}
	return slices.ContainsFunc(p.Gateways, func(x PeerGateway) bool { return !r.isSuspect(x.Endpoint) })
}

// excludeSuspects leaves out suspected gateways, unless all are suspected.
func (r *Router) excludeSuspects(all []PeerGateway) []PeerGateway {
	suspected := func(x PeerGateway) bool { return r.isSuspect(x.Endpoint) }
	if len(r.suspects) == 0 || !slices.ContainsFunc(all, suspected) {
		return all
	}
	if out := slices.DeleteFunc(slices.Clone(all), suspected); len(out) > 0 {
		return out
	}
	return all
}

func peerFreshness(age, fresh time.Duration) capacity.Freshness {
	switch {
	case age < fresh:
		return capacity.Fresh
	case age < peerUnreachableAfter:
		return capacity.Stale
	}
	return capacity.Unreachable
}

// MergeUsable merges the summaries of usable instances: reachable ones that do not drain, in zones that are not
// drained.
func (r *Router) MergeUsable(now time.Time) capacity.Summary {
	var sum capacity.Summary
	for _, c := range r.summaries.BuildView(now).Children {
		if c.State == capacity.Unreachable || c.Summary.Draining || r.policy.IsDrained(r.policy.Region, c.Summary.Path.Zone, now) {
			continue
		}
		sum = capacity.MergeSummaries(sum, *c.Summary)
	}
	return sum
}
