package routing

import (
	"maps"
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
		l := LocalInstance{Summary: s, Name: s.Path.String(), State: c.State, Age: c.Age, Weight: r.policy.ZoneWeights[s.Path.Zone]}
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

// trackAttempt adds an attempt in flight, so that SweepUnreachable can cancel it.
func (r *Router) trackAttempt(q *RouteQuery, a *Attempt, now time.Time) {
	at := r.endpoints[a.Decision.Endpoint]
	if at == nil {
		at = &endpointState{attempts: map[*Attempt]struct{}{}}
		r.endpoints[a.Decision.Endpoint] = at
	}
	a.query, a.endpoint, a.sentAt, a.RetryTaken, a.Cancelled = q, at, now, false, r.stopping
	at.attempts[a] = struct{}{}
}

// untrackAttempt removes an attempt that has ended.
func (r *Router) untrackAttempt(a *Attempt) {
	at := a.endpoint
	a.endpoint = nil
	delete(at.attempts, a)
	at.lastByteAt = laterTime(at.lastByteAt, a.lastByteAt())
	if e := a.Decision.Endpoint; len(at.attempts) == 0 && r.endpoints[e] == at {
		delete(r.endpoints, e)
	}
}

// CancelAll returns all attempts in flight, which the caller cancels because the gateway stops. Attempts dispatched
// later begin cancelled.
func (r *Router) CancelAll() []*Attempt {
	r.stopping = true
	all := r.OpenAttempts()
	for _, a := range all {
		a.Cancelled = true
	}
	return all
}

// OpenAttempts returns all attempts in flight.
func (r *Router) OpenAttempts() (all []*Attempt) {
	for _, at := range r.endpoints {
		all = slices.AppendSeq(all, maps.Keys(at.attempts))
	}
	return all
}

// SweepUnreachable returns the attempts at unreachable endpoints that the caller cancels now. An attempt without a
// first byte is retried elsewhere within the retry budget; a stream that is silent is ended. An endpoint is
// unreachable when neither a local instance's summary nor, for a peer's gateway, a directive reports it. A failed
// connection is weaker evidence, because other connections to the same endpoint may work. Call it after Rebuild.
func (r *Router) SweepUnreachable(now time.Time) (cancelled []*Attempt) {
	for endpoint, at := range r.endpoints {
		if r.reachable[endpoint] || r.policy.ReachableGateways[endpoint] {
			at.unreachableSince = time.Time{}
			continue
		}
		if at.unreachableSince.IsZero() {
			at.unreachableSince = now
		}
		if now.Sub(at.unreachableSince) < unreachableGrace {
			continue
		}
		lastByteAt := at.findLastByte()
		for a := range at.attempts {
			if a.Cancelled || !r.shouldCancel(a, lastByteAt, now) {
				continue
			}
			if a.Cancelled = true; len(cancelled) == maxCancelsPerSweep-1 {
				return append(cancelled, a)
			}
			cancelled = append(cancelled, a)
		}
	}
	return cancelled
}

// shouldCancel decides for one attempt at an unreachable endpoint, whose last byte to any attempt arrived at
// lastByteAt.
func (r *Router) shouldCancel(a *Attempt, lastByteAt, now time.Time) bool {
	if own := a.lastByteAt(); !own.IsZero() {
		return now.Sub(own) > maxStreamSilence
	}
	quiet := laterTime(laterTime(a.endpoint.unreachableSince, a.sentAt), lastByteAt)
	switch silence := now.Sub(quiet); {
	case silence > maxUnreachableWait:
		return true
	case silence < unreachableGrace || !a.MayRetry || !r.canServeElsewhere(a, now):
		return false
	}
	a.RetryTaken = r.retryBudget.TakeRetry(now)
	return a.RetryTaken
}

// canServeElsewhere reports whether a healthy endpoint would accept the request.
func (r *Router) canServeElsewhere(a *Attempt, now time.Time) bool {
	q := *a.query
	q.ExcludeEndpoint(a.Decision.Endpoint)
	d, ok := r.Preview(&q, now, nil)
	return ok && d.Reason != ReasonLastResort
}
