package regional

import (
	"context"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/rhythm"
	"github.com/spillway-lb/spillway/regional/zone"
)

const (
	// viewInterval is how often ages are looked at when no news comes.
	viewInterval = 100 * time.Millisecond
	// forgetAfter is when an instance that never came back is no longer shown.
	forgetAfter = 10 * time.Minute
	// suspectFor is how long an endpoint that refused a connection counts as lost.
	suspectFor = time.Second
	// absentFor is for how long it does if nobody tells of its region any more: both may be cut off.
	absentFor = 30 * time.Second
	// peerLost is when a peer's summary, which has come through the global tier, means nothing any more.
	peerLost = 10 * time.Second
	// peerUnheard is for how long after the global tier's last word a peer that was well by it may still be asked.
	peerUnheard = 10 * time.Minute
	// directiveLate is for how long the global tier must have said nothing for that to be silence: it speaks each second.
	directiveLate = 3 * time.Second
)

// onSummary takes a local's statement and credits it with the tickets that it counts.
func (g *Gateway) onSummary(_ identity.ID, s *capacity.Summary) {
	if g.heard(s, time.Now()) {
		g.refresh()
	}
}

// heard is false for a statement that is no news.
func (g *Gateway) heard(s *capacity.Summary, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken := g.book.Put(s, now)
	if taken {
		for i := range s.Acks {
			if a := &s.Acks[i]; a.Parent == g.cfg.Name && a.Boot == g.boot {
				g.ledger.Ack(s.Path, a.Ticket)
			}
		}
	}
	return taken
}

func (g *Gateway) onLost(_ identity.ID, p capacity.Path) {
	g.mu.Lock()
	g.book.Drop(p)
	g.mu.Unlock()
	g.refresh()
	if g.child != nil {
		g.child.Wake()
	}
}

// forget drops what is held of a local that begins again with a lower boot.
func (g *Gateway) forget(p capacity.Path) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.book.Forget(p)
}

// suspect counts an endpoint as lost for a moment: a connection to it failed, and its own silence would be noticed later.
func (g *Gateway) suspect(endpoint string) {
	now := time.Now()
	g.mu.Lock()
	g.suspectAt(endpoint, now)
	g.mu.Unlock()
	g.rebuild(now)
}

// suspectAt writes the suspicion down. The caller holds the lock.
func (g *Gateway) suspectAt(endpoint string, now time.Time) {
	d := suspectFor
	if g.view.Load().Unheard(endpoint) {
		d = absentFor
	}
	if until := now.Add(d); until.After(g.suspects[endpoint]) { // a second failure must not shorten the first one's
		g.suspects[endpoint] = until
	}
}

// refresh asks for a new view; calls that come faster than views are built become one.
func (g *Gateway) refresh() {
	select {
	case g.stale <- struct{}{}:
	default:
	}
}

// watch builds views until ctx ends: of a thousand locals each speaks ten times a second, and a view is of all of them.
func (g *Gateway) watch(ctx context.Context) {
	rhythm.Keep(ctx, g.stale, rhythm.Gap, viewInterval, g.rebuild)
}

// rebuild makes the view that requests choose from.
func (g *Gateway) rebuild(now time.Time) {
	g.rebuildView(now)
	if g.source != nil {
		g.completeSpec(now)
	}
}

func (g *Gateway) rebuildView(now time.Time) {
	st := g.state.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	for endpoint, until := range g.suspects {
		if !now.Before(until) {
			delete(g.suspects, endpoint)
		}
	}
	children := g.book.View(now).Children
	g.callRoll(children)
	near := map[string]bool{} // endpoints of locals that speak
	v := &zone.View{Locals: make([]zone.Local, 0, len(children)), Drained: st.drained(g.cfg.Region, "", now)}
	for _, c := range children {
		if c.State == capacity.Lost && c.Age > forgetAfter || !st.hasZone(c.Summary.Path.Zone) {
			g.book.Forget(c.Summary.Path)
			g.ledger.Forget(c.Summary.Path)
			continue
		}
		if c.State != capacity.Lost {
			near[c.Summary.Endpoint] = true
		}
		v.Locals = append(v.Locals, zone.Local{
			Summary: c.Summary, State: g.doubt(c.State, c.Summary.Endpoint), Age: c.Age,
			Drained: st.drained(g.cfg.Region, c.Summary.Path.Zone, now), Weight: st.weight(c.Summary.Path.Zone),
		})
	}
	v.Peers = g.peersOf(st, now)
	g.view.Store(v)
	g.reap(v, func(endpoint string) bool { return near[endpoint] || st.speaks(endpoint) }, now)
}

// doubt lowers a state for an endpoint that is under suspicion.
func (g *Gateway) doubt(f capacity.Freshness, endpoint string) capacity.Freshness {
	if _, bad := g.suspects[endpoint]; bad {
		return capacity.Lost
	}
	return f
}

func (g *Gateway) peersOf(st *state, now time.Time) []zone.Peer {
	if !st.ready() {
		return nil
	}
	peers := make([]zone.Peer, 0, len(st.peers))
	since := max(now.Sub(st.received), 0)
	for i := range st.peers {
		basis := &st.peers[i]
		p := &st.directive.Peers[basis.at]
		age := p.Age + since
		out := zone.Peer{
			Region: p.Region, Summary: p.Summary, Age: age, State: peerState(age, st.spillFresh()), RTT: p.RTT, Residency: basis.region.Residency,
			Drained: st.drained(p.Region, "", now), Gateways: g.trusted(basis.gateways),
		}
		if out.State != capacity.Fresh && g.unheard(st, p.Age, basis.gateways, now) {
			out.State, out.Unheard = capacity.Stale, true
		}
		peers = append(peers, out)
	}
	return peers
}

// unheard says that a peer's word is old only because the global tier is silent, which says nothing of the peer. One whose
// gateways all failed a connection lately may well be gone itself.
func (g *Gateway) unheard(st *state, age time.Duration, gateways []zone.PeerGateway, now time.Time) bool {
	silent, fresh := now.Sub(st.received), st.spillFresh()
	if st.kept || age >= fresh || silent < max(fresh, directiveLate) || silent > peerUnheard {
		return false
	}
	return slices.ContainsFunc(gateways, func(x zone.PeerGateway) bool {
		_, bad := g.suspects[x.Endpoint]
		return !bad
	})
}

// trusted leaves out gateways under suspicion, unless they are all there is.
func (g *Gateway) trusted(all []zone.PeerGateway) []zone.PeerGateway {
	bad := func(x zone.PeerGateway) bool { _, is := g.suspects[x.Endpoint]; return is }
	if len(g.suspects) == 0 || !slices.ContainsFunc(all, bad) {
		return all
	}
	if out := slices.DeleteFunc(slices.Clone(all), bad); len(out) > 0 {
		return out
	}
	return all
}

func peerState(age, fresh time.Duration) capacity.Freshness {
	switch {
	case age < fresh:
		return capacity.Fresh
	case age < peerLost:
		return capacity.Stale
	}
	return capacity.Lost
}
