package regional

import (
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/zone"
)

// spillShare is this gateway's part of a peer's headroom: an equal one of its region's.
func (s *state) spillShare() float64 {
	return s.spec.Routing.SpillShare / float64(max(len(s.home.Gateways), 1))
}

// spillFresh is how old a peer's headroom may be, 3 s where the spec says nothing.
func (s *state) spillFresh() time.Duration {
	if d := time.Duration(s.spec.Routing.SpillFresh); d > 0 {
		return d
	}
	return 3 * time.Second
}

// spent books a choice that leaves the region. The caller holds the lock.
func (g *Gateway) spent(q *request, v *zone.Verdict, now time.Time) {
	if v.Spilled() {
		g.spills.Take(v.Path.Region, q.query.Model, q.query.PromptTokens, v.Rate, now)
	}
}

// spillHop says in the headers what the peer needs to judge the request before its body comes: how long it may take there.
func spillHop(hop *relay.Hop, q *request, v *zone.Verdict) {
	hop.Hops++
	hop.SpillWithin = time.Duration(v.Within * float64(time.Second))
	if n := len(q.query.Prefix); n > 0 {
		hop.Prefix = q.query.Prefix[n-1]
	}
}

// judged learns from what became of a spill. A peer that refuses is left alone for a while, and this request does not ask
// it again. home says that the request goes back to where it could have been served in the first place: nothing was done
// for it yet, so that takes nothing out of the budget of retries.
func (g *Gateway) judged(q *request, c choice, res relay.Result, now time.Time) (home bool) {
	if !c.verdict.Spilled() || res.Status == 0 {
		return false
	}
	region := c.verdict.Path.Region
	g.mu.Lock()
	defer g.mu.Unlock()
	if !res.NotStarted {
		g.spills.Accepted(region, q.query.Model)
		return false
	}
	g.spills.Refused(region, q.query.Model, now, g.rng)
	g.metrics.spillRefused(region)
	q.query.Barred = region
	if c.verdict.Within <= 0 {
		return false
	}
	q.query.Barred = zone.BarAll // it is not hawked about
	return true
}

// waypoint is the last ticket that was issued before a moment.
type waypoint struct {
	at     time.Time
	ticket uint64
}

const (
	// maxWaypoints bounds those of one peer: a directive comes each second.
	maxWaypoints = 16
	// summaryDelay is how long a request that has reached a peer may take to show in what the global tier hears of it.
	summaryDelay = time.Second
)

// creditPeers takes what was spilled so long ago that the peers' summaries count it by now out of the ledger, or it would
// stand against them twice. The caller holds the lock.
func (g *Gateway) creditPeers(peers []uplink.Peer, now time.Time) {
	last := g.ledger.Last()
	for i := range peers {
		p := &peers[i]
		counted := now.Add(-p.Age - p.RTT - summaryDelay)
		marks := append(g.waypoints[p.Region], waypoint{now, last})
		k := 0
		for k < len(marks) && !marks[k].at.After(counted) {
			k++
		}
		if k > 0 {
			g.ledger.Ack(capacity.Path{Region: p.Region}, marks[k-1].ticket)
			marks = marks[k-1:]
		}
		g.waypoints[p.Region] = marks[max(0, len(marks)-maxWaypoints):]
	}
	for region := range g.waypoints {
		if !isPeer(peers, region) {
			delete(g.waypoints, region)
			g.ledger.Forget(capacity.Path{Region: region})
		}
	}
	g.spills.Retain(func(region string) bool { return isPeer(peers, region) })
}

func isPeer(peers []uplink.Peer, region string) bool {
	for i := range peers {
		if peers[i].Region == region {
			return true
		}
	}
	return false
}
