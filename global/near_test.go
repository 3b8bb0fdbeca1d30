package global

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// frankfurtCell is where clients["frankfurt"] is.
func frankfurtCell() string {
	return geo.CellName(geo.CellOf(geo.Place{Lat: 50.11, Lon: 8.68}))
}

// measuredAt is a region's statement that clients of the cell of Frankfurt are a median away.
func measuredAt(median time.Duration, samples, ageSec int64) *capacity.Summary {
	s := capacityOf(10000, 8)
	s.RTTs = []capacity.RTT{{Cell: frankfurtCell(), Samples: samples, TotalMicros: samples * median.Microseconds(), AgeSec: ageSec}}
	return s
}

// TestClientsFollowMeasuredRoundTrips: Frankfurt's clients reach the region beside them over a detour. They move to the
// region that is really nearer, and return when the measurement has aged out.
func TestClientsFollowMeasuredRoundTrips(t *testing.T) {
	p := newPlanet(t)
	p.settle()
	eventually(t, 5*time.Second, "each client is answered with its own region", p.allNearest)
	frankfurt := p.gates["frankfurt"]
	say := func(s *capacity.Summary) {
		frankfurt.summary.Store(s)
		frankfurt.child.Wake()
	}

	say(measuredAt(20*time.Millisecond, 64, 3)) // a last mile
	eventually(t, 10*time.Second, "the measurement is known", func() bool {
		v := p.nodes[0].view.Load()
		return v.near != nil && len(v.near.cells) == 1
	})
	eventually(t, 5*time.Second, "a last mile of 20 ms sends nobody away", p.allNearest)

	say(measuredAt(300*time.Millisecond, 64, 3))
	moved := eventually(t, 10*time.Second, "Frankfurt's clients are answered with Virginia by every node", func() bool {
		return p.answers(clients["frankfurt"], "virginia")
	})
	for _, other := range []string{"virginia", "tokyo"} {
		eventually(t, 5*time.Second, "clients of "+other+" stay", func() bool { return p.answers(clients[other], other) })
	}
	p.explained(t, "rtt 220.4 ms, measured: median 300.0 ms, n=64, age ")

	say(measuredAt(300*time.Millisecond, 64, int64(geo.MeasuredFor/time.Second)))
	back := eventually(t, 10*time.Second, "Frankfurt's clients are back", func() bool { return p.answers(clients["frankfurt"], "frankfurt") })
	p.explained(t, "rtt 2.0 ms, aged: median 300.0 ms, n=64, age 6h0m")
	t.Logf("moved after %s, back after %s", moved, back)

	say(capacityOf(10000, 8))
	eventually(t, 10*time.Second, "nothing is known any more", func() bool { return len(p.nodes[0].view.Load().near.cells) == 0 })
	p.explained(t, "rtt 2.0 ms, prior by distance, nothing measured")
}

// explained holds what explain says of Frankfurt's round trip, and that _why says the source.
func (p *planet) explained(t *testing.T, want string) {
	t.Helper()
	eventually(t, 5*time.Second, "explain says "+want, func() bool {
		out, err := p.admin(p.nodes[0]).Explain(t.Context(), admin.ExplainQuery{From: clients["frankfurt"], Model: "m1"})
		return err == nil && strings.Contains(strings.Join(out.Records[0].Notes, "\n"), "frankfurt: "+want)
	})
	source, _, _ := strings.Cut(want[strings.Index(want, " ms, ")+5:], ":")
	source, _, _ = strings.Cut(source, " ")
	eventually(t, 5*time.Second, "_why says rtt_source="+source, func() bool {
		_, texts, err := lookup(p.nodes[0], "_why.frankfurt."+service, 16, clients["frankfurt"])
		return err == nil && strings.Contains(strings.Join(texts, " "), "rtt_source="+source)
	})
}

// nearView is a still View in which Frankfurt measured its own cell.
func nearView(tb testing.TB, median time.Duration) *View {
	tb.Helper()
	still := stillView(tb)
	now, book := time.Now(), capacity.NewBook(capacity.Thresholds{})
	for _, c := range still.children.Children {
		s := *c.Summary
		if s.Path.Region == "frankfurt" {
			s.RTTs = append([]capacity.RTT{{Cell: "n00e000", Samples: 9, TotalMicros: 9}}, measuredAt(median, 64, 0).RTTs...)
			s.RTTs = append(s.RTTs, capacity.RTT{Cell: "nowhere", Samples: 9, TotalMicros: 9})
		}
		book.Put(&s, now)
	}
	v := newView(still.frame, still.state, book.View(now), still.quorum, now, true)
	v.adopt(nearness(v.frame, v.children, time.Hour, now))
	v.plan = still.plan
	v.table = steer.Compile(v.spec, v.geo, v.plan)
	return v
}

// TestPlansSeeMeasuredRoundTrips: the planner works with the distances that answers are given by.
func TestPlansSeeMeasuredRoundTrips(t *testing.T) {
	v := nearView(t, 300*time.Millisecond)
	r := v.region("frankfurt")
	v.regions[r].group.Summary.Demand = []capacity.Demand{{Service: service, Model: "m1", Cell: frankfurtCell(), TokensPerSec: 100}}
	in := v.input()
	if len(in.Cells) != 1 || in.Cells[0].RTT[r] < 0.2 {
		t.Fatalf("the planner is told %+v", in.Cells)
	}
	v.plan = steer.Solve(in).Plan
	v.table = steer.Compile(v.spec, v.geo, v.plan)
	if a := v.Answer(0, netip.MustParseAddr(clients["frankfurt"])); a.Addrs[0] != gatewayAddr["virginia"] {
		t.Errorf("with a plan Frankfurt is answered %v", a.Addrs)
	}
	if len(v.near.cells) != 1 { // a name that is no cell, and a cell that the atlas does not know
		t.Errorf("%d cells are measured", len(v.near.cells))
	}
}

// TestSmallChangesLeaveTablesAlone: what is no news must cost nothing.
func TestSmallChangesLeaveTablesAlone(t *testing.T) {
	was := nearView(t, 300*time.Millisecond).near
	for median, want := range map[time.Duration]bool{300 * time.Millisecond: false, 302 * time.Millisecond: false, 330 * time.Millisecond: true, 2 * time.Millisecond: true} {
		next := nearView(t, median).near
		next.frame = was.frame
		if got := next.differs(was); got != want {
			t.Errorf("300 ms to %s: differs is %v", median, got)
		}
	}
	none := &near{frame: was.frame, geo: was.frame.geo}
	if !none.differs(was) || !was.differs(none) || none.differs(none) {
		t.Error("a measurement that came or went is no difference")
	}
}

// TestNothingIsBlendedWhenTurnedOff holds for the priors alone.
func TestNothingIsBlendedWhenTurnedOff(t *testing.T) {
	v := nearView(t, 300*time.Millisecond)
	n := nearness(v.frame, v.children, -1, time.Now())
	if len(n.cells) != 0 || n.geo != v.frame.geo {
		t.Errorf("%d cells are measured", len(n.cells))
	}
}

// TestAbsurdAges: amounts that a Duration cannot hold.
func TestAbsurdAges(t *testing.T) {
	if age(capacity.MaxAmount) <= 0 || age(capacity.MaxAmount)+time.Hour <= 0 || micros(capacity.MaxAmount) <= 0 || age(3) != 3*time.Second || micros(7) != 7*time.Microsecond {
		t.Errorf("%s and %s", age(capacity.MaxAmount), micros(capacity.MaxAmount))
	}
}

// TestDryRunsSteerByMeasuredRoundTrips: a spec that changes nothing moves nobody who has followed a measurement.
func TestDryRunsSteerByMeasuredRoundTrips(t *testing.T) {
	v := nearView(t, 300*time.Millisecond)
	again := v.as(v.frame)
	again.settleOn(nil)
	if got, _ := again.sample(0, geo.CellNamed(frankfurtCell()), 1); again.regionName(got) != "virginia" {
		t.Errorf("the dry run sends Frankfurt's clients to %q", again.regionName(got))
	}
	h, err := v.rehearse(v.spec, nil)
	if err != nil || len(h.moves()) != 0 {
		t.Errorf("moves %+v, %v", h.moves(), err)
	}
}

// TestWhyNamesNobodysGateways: what anybody may ask for says how far, and not by whom that was measured.
func TestWhyNamesNobodysGateways(t *testing.T) {
	texts := strings.Join(nearView(t, 300*time.Millisecond).Why(0, netip.MustParseAddr(clients["frankfurt"])), " ")
	for _, want := range []string{"region=virginia", "rtt_source=prior"} {
		if !strings.Contains(texts, want) {
			t.Errorf("_why says %q, want %q", texts, want)
		}
	}
	id := nearView(t, time.Second).names["frankfurt."+service]
	texts = strings.Join(nearView(t, 300*time.Millisecond).Why(id, netip.MustParseAddr(clients["frankfurt"])), " ")
	for _, want := range []string{"rtt_source=measured", "rtt_n=64", "rtt_age_s=0", "rtt_prior_ms=2.0"} {
		if !strings.Contains(texts, want) {
			t.Errorf("_why says %q, want %q", texts, want)
		}
	}
	for _, secret := range []string{"gf", "127.0."} {
		if strings.Contains(texts, secret) {
			t.Errorf("_why says %q", texts)
		}
	}
}
