package world

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	crowdEach = 40 // clients of each place that are watched, each of a network of its own
	lossLasts = 10 * time.Minute
	confirmed = 30 * time.Second // how long without a leader answers count as confirmed: global.unconfirmed
)

// TestAllButOneGlobalNodeAndEveryUplinkAreLost: for ten minutes the last node, which hears nobody, answers every client
// as the last plan has it, says how old what it goes by is, and from when on nobody confirms it. When links and nodes
// return, together or one by one, no client is sent to and fro, and no node goes back to an older plan.
func TestAllButOneGlobalNodeAndEveryUplinkAreLost(t *testing.T) {
	for _, c := range []struct {
		name    string
		restart bool
		back    func(*siege)
	}{
		{"all at once", false, func(s *siege) { s.nodes(); s.uplinks(0, 1, 2) }},
		{"uplinks one by one, nodes last", false, func(s *siege) {
			s.uplinks(1)
			s.watch(20 * time.Second)
			s.uplinks(2)
			s.watch(20 * time.Second)
			s.uplinks(0)
			s.watch(20 * time.Second)
			s.nodes()
		}},
		{"nodes first, uplinks late", false, func(s *siege) {
			s.nodes()
			s.watch(time.Minute)
			s.uplinks(2, 0, 1)
		}},
		{"nodes were killed and start anew", true, func(s *siege) { s.nodes(); s.uplinks(0, 1, 2) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if raceDetector && !c.restart {
				t.Skip("one way back is enough for the race detector, and takes it minutes")
			}
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := besiege(t, dir, c.restart)
				s.lose()
				s.watch(lossLasts - time.Since(s.lost))
				s.returning()
				c.back(s)
				s.watch(3 * time.Minute)
				s.agree()
				s.recovered()
				s.end()
			})
		})
	}
}

// siege is a planet under load that loses its nodes and links, and what its clients see of that.
type siege struct {
	t       *testing.T
	p       *Planet
	restart bool
	up      []bool // by global node
	lost    time.Time
	epochs  []int        // the last seen, by node
	seen    [][]sighting // by node, then by client
	stop    context.CancelFunc
	load    sync.WaitGroup
}

// sighting is where a node sent a client last, and how often that changed since it was last counted from.
type sighting struct {
	to    netip.Addr
	flips int
}

func besiege(t *testing.T, dir string, restart bool) *siege {
	t.Helper()
	p, err := New(t.Context(), Config{Dir: dir, Keep: restart, Globals: 3, Regions: Three(1, 2, 2), TTL: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s := &siege{t: t, p: p, restart: restart, up: []bool{true, true, true}, epochs: make([]int, 3)}
	for range 3 {
		s.seen = append(s.seen, make([]sighting, 3*crowdEach))
	}
	s.demand()
	s.watch(90 * time.Second)
	if _, far := s.spread(); far == 0 {
		t.Fatal("the plan sends nobody away: the region is not full, and the test shows little")
	}
	return s
}

// demand asks of the first region more than it can do, evenly, so that the plan has something to say: what comes in by
// redirects of the surviving node is left out, for it is the answers that are looked at.
func (s *siege) demand() {
	rate, err := Rate(2000, 8)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	prompt := func(n int) string { return strings.Repeat(fmt.Sprintf("%07d ", n), 1000) }
	for place, busy := range []float64{1.2, 0.3, 0.3} {
		c := s.p.Caller()
		each := time.Duration(float64(time.Second) / (rate * busy * float64(s.p.cfg.Regions[place].Workers)))
		s.load.Go(func() {
			defer c.Close()
			var flying sync.WaitGroup
			defer flying.Wait()
			for n := 0; ctx.Err() == nil; n++ {
				from := Client(place, n%crowdEach)
				a, err := s.p.Ask(0, from, Service)
				if err == nil {
					flying.Go(func() { c.Post(ctx, from, a.Addr, prompt(place*1e6+n), 8) })
				}
				time.Sleep(each)
			}
		})
	}
}

// watch asks for every client, at every node that is there, once a second.
func (s *siege) watch(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
		for node := range s.up {
			if s.up[node] {
				s.look(node)
			}
		}
	}
}

func (s *siege) look(node int) {
	for c := range s.seen[node] {
		a, err := s.p.Ask(node, Client(c/crowdEach, c%crowdEach), Service)
		if err != nil || a.Rcode != dnsmessage.RCodeSuccess || s.p.RegionOf(a.Addr) < 0 || a.TTL < 5*time.Second {
			s.t.Fatalf("%s: node %d answers client %d %+v (%v)", s.since(), node, c, a, err)
		}
		x := &s.seen[node][c]
		if x.to.IsValid() && x.to != a.Addr {
			x.flips++
		}
		if s.during() && x.to != a.Addr {
			s.t.Fatalf("%s: node %d sends client %d to %s, the last plan had %s", s.since(), node, c, a.Addr, x.to)
		}
		x.to = a.Addr
		if silent := time.Since(s.lost); s.during() && a.Stale != (silent > confirmed) && (silent-confirmed).Abs() > 2*time.Second {
			s.t.Fatalf("%s: node %d: stale is %v", s.since(), node, a.Stale)
		}
	}
	s.ages(node)
}

// ages looks at what a node says of itself: its plan never gets older, and its ages are those of the clock.
func (s *siege) ages(node int) {
	v, err := s.p.Ask(node, Client(0, 0), "_view."+Zone)
	if err != nil {
		s.t.Fatal(err)
	}
	epoch, _ := strconv.Atoi(v.Fields["plan_epoch"])
	if epoch < s.epochs[node] {
		s.t.Fatalf("%s: node %d goes back from plan %d to %d", s.since(), node, s.epochs[node], epoch)
	}
	s.epochs[node] = epoch
	if !s.during() {
		return
	}
	silent := time.Since(s.lost)
	s.is(node, "led_ms", v.Fields["led_ms"], silent, 3*time.Second) // followers believe in a leader for a while
	if want := map[bool]string{true: "no", false: "yes"}[silent > confirmed]; v.Fields["confirmed"] != want && (silent-confirmed).Abs() > 3*time.Second {
		s.t.Fatalf("%s: node %d says confirmed=%s", s.since(), node, v.Fields["confirmed"])
	}
	if silent < 3*time.Second {
		return
	}
	w, err := s.p.Ask(node, Client(1, 0), "_why."+Service)
	if err != nil || w.Fields["region_state"] != "lost" || w.Fields["plan_epoch"] != v.Fields["plan_epoch"] {
		s.t.Fatalf("%s: node %d says why: %v (%v)", s.since(), node, w.Fields, err)
	}
	s.is(node, "region_age_ms", w.Fields["region_age_ms"], silent, time.Second)
}

// is compares an age in milliseconds with the clock's.
func (s *siege) is(node int, name, text string, want, within time.Duration) {
	got, err := strconv.ParseFloat(text, 64)
	if err != nil || math.Abs(got-want.Seconds()*1000) > within.Seconds()*1000 {
		s.t.Fatalf("%s: node %d says %s=%s, want %.0f", s.since(), node, name, text, want.Seconds()*1000)
	}
}

func (s *siege) during() bool { return !s.lost.IsZero() }

func (s *siege) since() string {
	if s.lost.IsZero() {
		return "before or after the loss"
	}
	return time.Since(s.lost).Round(time.Second).String() + " into the loss"
}

// lose cuts all but the first node off, and every gateway from every node.
func (s *siege) lose() {
	for node := range s.up {
		s.look(node) // a plan may have come since the last time
	}
	for i := 1; i < 3; i++ {
		s.p.Net.Cut(GlobalHost(i))
		s.up[i] = false
	}
	for r := range 3 {
		for i := range 3 {
			s.p.Net.Sever(GatewayHost(r), GlobalHost(i))
		}
	}
	if s.restart {
		for i := 1; i < 3; i++ {
			if err := s.p.StopGlobal(i); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	cut := time.Now()
	time.Sleep(time.Second) // one that was agreed in this very moment is in force as soon as the node has read it
	s.look(0)
	for node := range s.seen {
		for c := range s.seen[node] {
			s.seen[node][c].flips = 0
		}
	}
	s.lost = cut
}

// returning ends the loss: from now on moves are counted.
func (s *siege) returning() { s.lost = time.Time{} }

func (s *siege) nodes() {
	for i := 1; i < 3; i++ {
		s.p.Net.Mend(GlobalHost(i))
		if s.restart {
			if err := s.p.StartGlobal(s.t.Context(), i); err != nil {
				s.t.Fatal(err)
			}
			time.Sleep(time.Second) // it answers once it has read what it wrote down
		}
		s.up[i] = true
	}
}

func (s *siege) uplinks(regions ...int) {
	for _, r := range regions {
		for i := range 3 {
			s.p.Net.Join(GatewayHost(r), GlobalHost(i))
		}
	}
}

// spread is how many of the first place's clients the first node keeps there, and how many it sends away.
func (s *siege) spread() (home, far int) {
	for c := range crowdEach {
		if s.seen[0][c].to == GatewayHost(0) {
			home++
		} else {
			far++
		}
	}
	return home, far
}

// agree looks at every client until the nodes have one plan, before the looks and after: a plan that is agreed on between
// the looks of two nodes is in force at one and not yet seen at the other.
func (s *siege) agree() {
	for range 30 {
		before := s.plans()
		s.look(0)
		s.look(1)
		s.look(2)
		if after := s.plans(); slices.Equal(before, after) && before[0] == before[1] && before[0] == before[2] {
			return
		}
		time.Sleep(time.Second)
	}
	s.t.Fatalf("the nodes never have one plan: %v", s.plans())
}

// plans is the epoch of the plan in force at each node.
func (s *siege) plans() (epochs []string) {
	for node := range s.up {
		v, err := s.p.Ask(node, Client(0, 0), "_view."+Zone)
		if err != nil {
			s.t.Fatal(err)
		}
		epochs = append(epochs, v.Fields["plan_epoch"])
	}
	return epochs
}

// recovered holds that nobody was sent to and fro, and that the nodes agree again.
func (s *siege) recovered() {
	flips, moved := 0, 0
	for node := range s.seen {
		for c, x := range s.seen[node] {
			if x.flips > 1 {
				flips++
				if flips < 4 {
					s.t.Errorf("node %d sent client %d of place %d elsewhere %d times", node, c%crowdEach, c/crowdEach, x.flips)
				}
			}
			if x.flips > 0 {
				moved++
			}
			if x.to != s.seen[0][c].to {
				s.t.Errorf("client %d is sent to %s by node 0 and to %s by node %d", c, s.seen[0][c].to, x.to, node)
			}
		}
	}
	home, far := s.spread()
	s.t.Logf("of %d sightings %d moved once, %d more often; %d of the full region's clients stay there, %d do not; plans %v", 9*crowdEach, moved-flips, flips, home, far, s.epochs)
	for node := range s.epochs {
		v, err := s.p.Ask(node, Client(0, 0), "_view."+Zone)
		if err != nil || v.Fields["confirmed"] != "yes" || s.epochs[node] != s.epochs[0] {
			s.t.Errorf("node %d says %v, plans are %v (%v)", node, v.Fields, s.epochs, err)
		}
	}
}

func (s *siege) end() {
	s.stop()
	s.load.Wait()
	if err := s.p.Stop(s.t.Context()); err != nil {
		s.t.Error(err)
	}
}
