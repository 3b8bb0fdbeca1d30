package global

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// frankfurtCell is the cell of clientAddrs["frankfurt"].
func frankfurtCell() string {
	return geo.CellName(geo.CellAt(geo.Location{Lat: 50.11, Lon: 8.68}))
}

// summaryWithRTT returns a region's summary with a median RTT to the clients of Frankfurt's cell.
func summaryWithRTT(median time.Duration, samples, ageSec int64) *capacity.Summary {
	s := summaryWithCapacity(10000, 8)
	s.RTTs = []capacity.CellRTT{{Cell: frankfurtCell(), Samples: samples, TotalMicros: samples * median.Microseconds(), AgeSec: ageSec}}
	return s
}

// TestClientsFollowMeasuredRoundTrips: Frankfurt's clients reach the adjacent region over a detour. They move to the
// region with the lower RTT, and return when the measurement has expired.
func TestClientsFollowMeasuredRoundTrips(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	testkit.Eventually(t, "each client is answered with its own region", p.allNearest)
	frankfurt := p.gateways["frankfurt"]
	say := func(s *capacity.Summary) {
		frankfurt.summary.Store(s)
		frankfurt.child.SummarizeNow()
	}

	say(summaryWithRTT(20*time.Millisecond, 64, 3)) // a last mile
	testkit.Eventually(t, "the measurement is known", func() bool {
		v := p.nodes[0].snapshot.Load()
		return v.RTTs != nil && len(v.RTTs.ByCell) == 1
	})
	testkit.Eventually(t, "a last mile of 20 ms moves no client", p.allNearest)

	say(summaryWithRTT(300*time.Millisecond, 64, 3))
	moved := testkit.Eventually(t, "Frankfurt's clients are answered with Virginia by every node", func() bool {
		return p.allAnswerRegion(clientAddrs["frankfurt"], "virginia")
	})
	for _, other := range []string{"virginia", "tokyo"} {
		testkit.Eventually(t, "clients of "+other+" stay", func() bool { return p.allAnswerRegion(clientAddrs[other], other) })
	}
	p.checkExplainedRTT(t, "rtt 220.4 ms, measured: median 300.0 ms, n=64, age ")

	say(summaryWithRTT(300*time.Millisecond, 64, int64(geo.DefaultMaxMeasurementAge/time.Second)))
	back := testkit.Eventually(t, "Frankfurt's clients are back", func() bool { return p.allAnswerRegion(clientAddrs["frankfurt"], "frankfurt") })
	p.checkExplainedRTT(t, "rtt 2.0 ms, aged: median 300.0 ms, n=64, age 6h0m")
	t.Logf("moved after %s, back after %s", moved, back)

	say(summaryWithCapacity(10000, 8))
	testkit.Eventually(t, "nothing is known any more", func() bool { return len(p.nodes[0].snapshot.Load().RTTs.ByCell) == 0 })
	p.checkExplainedRTT(t, "rtt 2.0 ms, prior by distance, nothing measured")
}

// checkExplainedRTT checks the RTT of Frankfurt in explain, and its source in _why.
func (p *testFleet) checkExplainedRTT(t *testing.T, want string) {
	t.Helper()
	testkit.Eventually(t, "explain shows "+want, func() bool {
		out, err := p.adminClient(p.nodes[0]).ExplainRequest(t.Context(), admin.ExplainQuery{From: clientAddrs["frankfurt"], Model: "m1"})
		return err == nil && strings.Contains(strings.Join(out.Records[0].Notes, "\n"), "frankfurt: "+want)
	})
	source, _, _ := strings.Cut(want[strings.Index(want, " ms, ")+5:], ":")
	source, _, _ = strings.Cut(source, " ")
	testkit.Eventually(t, "_why has rtt_source="+source, func() bool {
		_, texts, err := lookupDNS(p.nodes[0], "_why.frankfurt."+testService, 16, clientAddrs["frankfurt"])
		return err == nil && strings.Contains(strings.Join(texts, " "), "rtt_source="+source)
	})
}

// newMeasuredSnapshot returns a static snapshot in which Frankfurt measured its own cell.
func newMeasuredSnapshot(tb testing.TB, median time.Duration) *nodeSnapshot {
	tb.Helper()
	still := newStaticSnapshot(tb)
	now, book := time.Now(), capacity.NewSummaryTable(capacity.FreshnessThresholds{})
	for _, c := range still.Children.Children {
		s := *c.Summary
		if s.Path.Region == "frankfurt" {
			s.RTTs = append([]capacity.CellRTT{{Cell: "n00e000", Samples: 9, TotalMicros: 9}}, summaryWithRTT(median, 64, 0).RTTs...)
			s.RTTs = append(s.RTTs, capacity.CellRTT{Cell: "nowhere", Samples: 9, TotalMicros: 9})
		}
		book.PutSummary(&s, now)
	}
	v := testSnapshot(still.policy, still.state, book.BuildView(now), still.Votes, now, true)
	v.SetRTTs(snapshot.EstimateRTTs(v.SteeringPolicy, v.Children, time.Hour, now))
	v.Plan = still.Plan
	v.Table = steer.CompileTable(v.Spec, v.Geo, v.Plan)
	return v
}

// TestPlansUseMeasuredRoundTrips: the planner uses the same RTTs as answers.
func TestPlansUseMeasuredRoundTrips(t *testing.T) {
	v := newMeasuredSnapshot(t, 300*time.Millisecond)
	r := v.RegionIndex("frankfurt")
	v.Regions[r].Group.Summary.Demand = []capacity.CellDemand{{Service: testService, Model: "m1", Cell: frankfurtCell(), TokensPerSec: 100}}
	in := v.BuildPlanInput()
	if len(in.Cells) != 1 || in.Cells[0].RTT[r] < 0.2 {
		t.Fatalf("the planner's input is %+v", in.Cells)
	}
	v.Plan = steer.SolvePlan(in).Plan
	v.Table = steer.CompileTable(v.Spec, v.Geo, v.Plan)
	if a := v.AnswerService(0, netip.MustParseAddr(clientAddrs["frankfurt"])); a.Addrs[0] != testGatewayAddrs["virginia"] {
		t.Errorf("with a plan Frankfurt is answered %v", a.Addrs)
	}
	if len(v.RTTs.ByCell) != 1 { // ignored: a name that is no cell, and a cell unknown to the atlas
		t.Errorf("%d cells are measured", len(v.RTTs.ByCell))
	}
}

// TestSmallRTTChangesReuseTheTable: an insignificant change must not rebuild the table.
func TestSmallRTTChangesReuseTheTable(t *testing.T) {
	was := newMeasuredSnapshot(t, 300*time.Millisecond).RTTs
	for median, want := range map[time.Duration]bool{300 * time.Millisecond: false, 302 * time.Millisecond: false, 330 * time.Millisecond: true, 2 * time.Millisecond: true} {
		next := newMeasuredSnapshot(t, median).RTTs
		next.Policy = was.Policy
		if got := next.DiffersFrom(was); got != want {
			t.Errorf("300 ms to %s: differs is %v", median, got)
		}
	}
	none := &snapshot.RTTEstimates{Policy: was.Policy, Geo: was.Policy.PriorGeo}
	if !none.DiffersFrom(was) || !was.DiffersFrom(none) || none.DiffersFrom(none) {
		t.Error("a measurement that came or went is no difference")
	}
}

// TestMeasurementsCanBeTurnedOff tests steering by priors only.
func TestMeasurementsCanBeTurnedOff(t *testing.T) {
	v := newMeasuredSnapshot(t, 300*time.Millisecond)
	n := snapshot.EstimateRTTs(v.SteeringPolicy, v.Children, -1, time.Now())
	if len(n.ByCell) != 0 || n.Geo != v.SteeringPolicy.PriorGeo {
		t.Errorf("%d cells are measured", len(n.ByCell))
	}
}

// TestDryRunsSteerByMeasuredRoundTrips: a spec that changes nothing moves no client that has followed a measurement.
func TestDryRunsSteerByMeasuredRoundTrips(t *testing.T) {
	v := newMeasuredSnapshot(t, 300*time.Millisecond)
	again := dryRunSide{snapshotWithPolicy(v.SteeringSnapshot, v.SteeringPolicy, time.Now())}
	again.solveForDemand(nil)
	if got, _ := again.sampleRegion(0, geo.ParseCellName(frankfurtCell()), 1); again.regionName(got) != "virginia" {
		t.Errorf("the dry run sends Frankfurt's clients to %q", again.regionName(got))
	}
	h, err := dryRunSpec(v, v.Spec, nil)
	if err != nil || len(h.largestMoves()) != 0 {
		t.Errorf("moves %+v, %v", h.largestMoves(), err)
	}
}

// TestWhyHidesGateways: the public TXT answer shows the RTT, and not which gateway measured it.
func TestWhyHidesGateways(t *testing.T) {
	texts := strings.Join(newMeasuredSnapshot(t, 300*time.Millisecond).ExplainAnswer(0, netip.MustParseAddr(clientAddrs["frankfurt"])), " ")
	for _, want := range []string{"region=virginia", "rtt_source=prior"} {
		if !strings.Contains(texts, want) {
			t.Errorf("_why is %q, want %q", texts, want)
		}
	}
	id, _ := newMeasuredSnapshot(t, time.Second).LookupService([]byte("frankfurt." + testService))
	texts = strings.Join(newMeasuredSnapshot(t, 300*time.Millisecond).ExplainAnswer(id, netip.MustParseAddr(clientAddrs["frankfurt"])), " ")
	for _, want := range []string{"rtt_source=measured", "rtt_n=64", "rtt_age_s=0", "rtt_prior_ms=2.0"} {
		if !strings.Contains(texts, want) {
			t.Errorf("_why is %q, want %q", texts, want)
		}
	}
	for _, secret := range []string{"gf", "127.0."} {
		if strings.Contains(texts, secret) {
			t.Errorf("_why is %q", texts)
		}
	}
}
