package global

import (
	"encoding/json"
	"math"
	"net/netip"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/dns"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
)

// Lab is a global node for a caller that brings its own time, such as the simulator: its Views, its testimony, its planner
// and what it answers, without Raft, DNS and uplink around them. What is agreed on is in force when its caller says so.
// A Lab has one caller at a time; the same calls come to the same decisions.
type Lab struct {
	name    string
	voters  []string
	frame   *frame
	state   consensus.State
	book    *capacity.Book
	bench   *bench
	planner *planner
	calm    calm
	near    *near
	plan    *steer.Plan
	table   *steer.Table
	view    *View
	started time.Time
}

// LabConfig says what a Lab is.
type LabConfig struct {
	// Name is the node's, and Voters are all nodes of the global tier, it included.
	Name   string
	Voters []string
	// Spec in force.
	Spec *spec.Spec
	// Clients are the places where clients may live.
	Clients []geo.Place
}

// NewLab returns a node that has heard of nobody.
func NewLab(c LabConfig, now time.Time) *Lab {
	s := c.Spec
	f := &frame{version: 1, spec: s, geo: labGeography(s, c.Clients), zone: &dns.Zone{}}
	for range s.Regions {
		f.https = append(f.https, 0)
	}
	f.nameAll()
	l := &Lab{name: c.Name, voters: c.Voters, frame: f, book: capacity.NewBook(capacity.Thresholds{}), started: now, near: &near{frame: f, geo: f.geo, made: now}}
	l.state.SpecVersion = 1
	l.bench = newBench(func() {})
	l.planner = &planner{s: &Server{bench: l.bench, started: now}}
	l.table = steer.Compile(s, f.geo, nil)
	l.Look(now)
	return l
}

func labGeography(s *spec.Spec, clients []geo.Place) *steer.Geography {
	n := len(s.Regions)
	names, rtt := make([]string, geo.NumCells), make([]float32, geo.NumCells*n)
	for i := range rtt {
		rtt[i] = float32(math.NaN())
	}
	for _, p := range clients {
		id := int(geo.CellOf(p))
		names[id] = geo.CellName(geo.CellOf(p))
		for r := range s.Regions {
			rtt[id*n+r] = float32(geo.RTT(p, placeOf(&s.Regions[r])).Seconds())
		}
	}
	return steer.NewGeography(n, names, rtt)
}

// Hear takes a gateway's statement.
func (l *Lab) Hear(s *capacity.Summary, now time.Time) { l.book.Put(s, now) }

// Drain puts drains in force.
func (l *Lab) Drain(drains []consensus.Drain) {
	l.state.Drains = drains
	l.state.Index++
}

// Testimony is what the node says to the others of whom it hears.
func (l *Lab) Testimony(now time.Time) []byte {
	b, err := json.Marshal(testify(l.book.View(now), now.Sub(l.started) > grace))
	if err != nil {
		return nil // never: it is names and a number
	}
	return b
}

// Witness takes another node's testimony.
func (l *Lab) Witness(from string, body []byte, now time.Time) { l.bench.takeAt(from, body, now) }

// LookEvery is how often Look is called, TestifyEvery how often Testimony goes out, and TellEvery how often gateways are
// told how their peers are.
const (
	LookEvery    = tick
	TestifyEvery = 250 * time.Millisecond
	TellEvery    = peersEvery
)

// Look makes the next View.
func (l *Lab) Look(now time.Time) {
	children := l.book.View(now)
	if now.Sub(l.near.made) >= relearn {
		l.near = &near{frame: l.frame, geo: l.frame.geo, made: now}
		l.near.peers = l.near.paths(children)
	}
	v := newView(l.frame, &l.state, children, &quorum{self: l.name, voters: l.voters, others: l.bench.fresh(now)}, now, now.Sub(l.started) > grace)
	v.adopt(l.near)
	v.from, v.plan, v.table = agreedState, l.plan, l.table
	v.restless = l.calm.restless(v.drained, v.gone, now)
	l.view = v
}

// Plan solves once. Nil: the plan in force is as good.
func (l *Lab) Plan(now time.Time) *steer.Plan {
	v := l.view
	if !v.settled(now.Sub(l.started)) {
		return nil
	}
	if region, _ := v.hearsay(); region != "" {
		return nil
	}
	res := steer.Solve(l.planner.input(v, now))
	if !res.Publish {
		return nil
	}
	return res.Plan
}

// Adopt puts the plan of an epoch in force, as when it has been agreed on.
func (l *Lab) Adopt(p *steer.Plan, epoch uint64, now time.Time) {
	l.plan = p
	l.state.Index += epoch - l.state.PlanEpoch
	l.state.PlanEpoch = epoch
	l.table = steer.Recompile(l.table, l.frame.spec, l.frame.geo, p)
	l.Look(now)
}

// Directive is what the gateways of a region are told.
func (l *Lab) Directive(region string, now time.Time) *uplink.Directive {
	v := l.view
	d := &uplink.Directive{
		Index: v.state.Index, SpecVersion: v.version, PlanEpoch: v.state.PlanEpoch, Peers: v.peers(v.region(region), now),
	}
	for _, x := range v.state.Drains {
		d.Drains = append(d.Drains, uplink.Drain{Path: x.Path, Until: x.Until, Reason: x.Reason})
	}
	return d
}

// Answer is the region that a client of a place is sent to, by its place in the spec, and for how long the answer counts.
func (l *Lab) Answer(service int, from geo.Place, client netip.Addr) (region int, ttl time.Duration) {
	region, _, _ = l.view.send(service, geo.CellOf(from), client)
	return region, time.Duration(l.view.ttl(service)) * time.Second
}
