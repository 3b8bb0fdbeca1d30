package global

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/testkit"
	"pgregory.net/rapid"
)

// TestRestartedNodeSteersByMeasuredRoundTrips: Frankfurt's clients reach it over a detour and are sent to Virginia. A
// restarted node sends them there before any gateway has reported.
func TestRestartedNodeSteersByMeasuredRoundTrips(t *testing.T) {
	t.Parallel()
	p, peers := newUnstartedFleet(t)
	dir := t.TempDir()
	s := p.startNode(peers[:1], 0, dir)
	p.nodes = []*Server{s}
	g := p.newFakeGateway("frankfurt", "gf")
	g.summary.Store(summaryWithRTT(300*time.Millisecond, 64, 3))
	other := p.newFakeGateway("virginia", "gv")
	testkit.Eventually(t, "clients follow the measurement", func() bool { return answeredRegion(s, clientAddrs["frankfurt"]) == "virginia" })
	testkit.Eventually(t, "it is persisted", func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "last-state.json"))
		return err == nil && bytes.Contains(b, []byte(frankfurtCell()))
	})
	g.stopChild()
	other.stopChild()
	p.stopNode(s)

	s = p.startNode(peers[:1], 0, dir)
	v := s.snapshot.Load()
	if v == nil || len(v.RTTs.ByCell) != 1 {
		t.Fatalf("the first view steers by %+v", v)
	}
	if got := answeredRegion(s, clientAddrs["frankfurt"]); got != "virginia" {
		t.Errorf("Frankfurt's clients are sent to %s", got)
	}
}

// TestReportsReplacePersistedRoundTrips: from the first report of a region's gateways on, its persisted RTTs are
// ignored, whether the report has RTTs or not.
func TestReportsReplacePersistedRoundTrips(t *testing.T) {
	start := time.Now()
	rtts := []capacity.CellRTT{{Cell: frankfurtCell(), Samples: 9, TotalMicros: 9000, AgeSec: 5}}
	m := measurements{persisted: []snapshot.RegionRTTs{{Region: "frankfurt", RTTs: rtts, Age: time.Minute}, {Region: "tokyo", RTTs: rtts, Age: time.Minute}}, readAt: start}
	book := capacity.NewSummaryTable(capacity.FreshnessThresholds{})
	all := m.mergeReports(book.BuildView(start), start.Add(time.Hour))
	if len(all) != 2 || all[0].Age != time.Hour+time.Minute {
		t.Fatalf("before any report %+v", all)
	}
	s := summaryWithCapacity(1, 1)
	s.Path, s.Boot, s.Seq = capacity.Path{Region: "tokyo", Instance: "gt"}, 1, 1
	book.PutSummary(s, start)
	all = m.mergeReports(book.BuildView(start), start.Add(time.Hour))
	if len(all) != 2 || all[0].Region != "tokyo" || len(all[0].RTTs) != 0 || all[1].Region != "frankfurt" {
		t.Fatalf("after a report of Tokyo %+v", all)
	}
	if again := m.mergeReports(capacity.NewSummaryTable(capacity.FreshnessThresholds{}).BuildView(start), start); len(again) != 1 {
		t.Errorf("what was persisted comes back: %+v", again)
	}
}

// TestPersistedRoundTripsAge: persisted RTTs age while the node is stopped, and those with a future date are not
// used.
func TestPersistedRoundTripsAge(t *testing.T) {
	wall := time.UnixMilli(1_800_000_000_000)
	all := []snapshot.RegionRTTs{{Region: "frankfurt", RTTs: []capacity.CellRTT{{Cell: "a", Samples: 9, TotalMicros: 9, AgeSec: 60}, {Cell: "old", Samples: 9, AgeSec: 3600}}, Age: time.Minute}}
	b, err := encodeMeasured(all, time.Hour, wall)
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]time.Duration{0: 2 * time.Minute, time.Hour: 62 * time.Minute, -4 * time.Second: 2 * time.Minute, 1e6 * time.Hour: 1000*time.Hour + 2*time.Minute} {
		got, err := decodeMeasured(b, wall.Add(after))
		if err != nil || len(got) != 1 || len(got[0].RTTs) != 1 || snapshot.SecondsToAge(got[0].RTTs[0].AgeSec)+got[0].Age != want {
			t.Errorf("%s later: %+v, %v; want an age of %s", after, got, err, want)
		}
	}
	if got, err := decodeMeasured(b, wall.Add(-time.Minute)); err == nil || got != nil {
		t.Errorf("of the future: %+v, %v", got, err)
	}
	if b, err := encodeMeasured(all, time.Second, wall); b != nil || err != nil {
		t.Errorf("nothing that counts is written as %s, %v", b, err)
	}
}

// TestPersistedRoundTripsAreBounded: the number of persisted RTTs is bounded, and the ones with the most samples
// stay.
func TestPersistedRoundTripsAreBounded(t *testing.T) {
	var all []snapshot.RegionRTTs
	for r := range 300 {
		x := snapshot.RegionRTTs{Region: fmt.Sprint("r", r)}
		for c := range capacity.MaxRTTs {
			x.RTTs = append(x.RTTs, capacity.CellRTT{Cell: fmt.Sprintf("n%02de%03d", c%90, c), Samples: int64(1 + c), TotalMicros: 1000})
		}
		all = append(all, x)
	}
	b, err := encodeMeasured(all, geo.DefaultMaxMeasurementAge, time.Now())
	if err != nil || len(b) > 1<<20 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	got, err := decodeMeasured(b, time.Now())
	if err != nil || len(got) != 256 || len(got[0].RTTs) != maxMeasured/256 || got[0].RTTs[0].Samples != capacity.MaxRTTs {
		t.Fatalf("%d regions, %v", len(got), err)
	}
}

// TestBackupWithBadRoundTripsKeepsTheState: a file without RTTs, or with malformed ones, still restores the state.
func TestBackupWithBadRoundTripsKeepsTheState(t *testing.T) {
	const state = `{"index":5,"spec_version":3,"spec":"x","plan_epoch":9`
	for text, want := range map[string]int{
		state + `}`: 0,
		state + `,"measured":{"version":1,"at_ms":1000,"regions":[{"region":"eu","rtts":[{"cell":"c","samples":1,"total_us":5,"age_s":0}]}]}}`: 1,
		state + `,"measured":{"version":2,"at_ms":1000,"regions":[{"region":"eu"}]}}`:                                                          0,
		state + `,"measured":{"version":1,"at_ms":1000,"regions":[{"region":"eu","rtts":[{"cell":"c","samples":-1}]}]}}`:                       0,
		state + `,"measured":[1,2]}`: 0,
	} {
		b, log := newStateBackup(t.TempDir(), slog.New(slog.DiscardHandler)), new(testkit.LogBuffer)
		b.log = newTextLog(log)
		if err := os.WriteFile(b.path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		st, _ := b.loadState()
		if st == nil || st.SpecVersion != 3 || len(b.restoredRTTs) != want {
			t.Errorf("%s: state %+v, %d regions", text, st, len(b.restoredRTTs))
		}
		broken := want == 0 && strings.Contains(text, `"measured":`)
		if strings.Contains(log.String(), "measured round trips in the backup") != broken {
			t.Errorf("%s: logged %q", text, log.String())
		}
	}
}

// TestWhenRoundTripsAreWritten: at once when another region measures, and otherwise at intervals.
func TestWhenRoundTripsAreWritten(t *testing.T) {
	var m measurements
	now := time.Now()
	for i, x := range []struct {
		after     time.Duration
		measuring int
		want      bool
	}{{0, 0, false}, {1, 1, true}, {2, 1, false}, {3, 2, true}, {measuredEvery, 2, false}, {measuredEvery + 3, 2, true}, {measuredEvery + 4, 2, false}, {3 * measuredEvery, 0, false}} {
		if got := m.isWriteDue(x.measuring, now.Add(x.after)); got != x.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
}

// TestMeasuredFileRoundTrip: decoding returns what was encoded.
func TestMeasuredFileRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wall := time.UnixMilli(rapid.Int64Range(1, math.MaxInt64/1_000_000).Draw(t, "wall"))
		names := rapid.SliceOfNDistinct(rapid.StringMatching("[a-z]{1,8}"), 0, 5, rapid.ID[string]).Draw(t, "regions")
		var all, want []snapshot.RegionRTTs
		for _, name := range names {
			x := snapshot.RegionRTTs{Region: name}
			for _, cell := range rapid.SliceOfNDistinct(rapid.StringMatching("[a-z0-9]{1,8}"), 0, 5, rapid.ID[string]).Draw(t, "cells") {
				x.RTTs = append(x.RTTs, capacity.CellRTT{
					Cell: cell, Samples: rapid.Int64Range(1, capacity.MaxAmount).Draw(t, "samples"),
					TotalMicros: rapid.Int64Range(0, capacity.MaxAmount).Draw(t, "total"), AgeSec: rapid.Int64Range(0, 3600).Draw(t, "age"),
				})
			}
			slices.SortFunc(x.RTTs, func(a, b capacity.CellRTT) int {
				if a.Samples != b.Samples {
					return int(max(min(b.Samples-a.Samples, 1), -1))
				}
				return strings.Compare(a.Cell, b.Cell)
			})
			all = append(all, x)
			if len(x.RTTs) > 0 {
				want = append(want, x)
			}
		}
		b, err := encodeMeasured(all, time.Hour, wall)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeMeasured(b, wall)
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Fatalf("%v\nread    %+v\nwritten %+v", err, got, want)
		}
	})
}

// FuzzDecodeMeasured: for any file, the decoded RTTs are bounded and can be encoded.
func FuzzDecodeMeasured(f *testing.F) {
	f.Add([]byte(`{"version":1,"at_ms":1000,"regions":[{"region":"eu","rtts":[{"cell":"c","samples":1,"total_us":5,"age_s":0}]}]}`))
	f.Add([]byte(`{"version":1,"at_ms":9223372036854775807,"regions":[{"region":"","rtts":null}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		wall := time.UnixMilli(1_800_000_000_000)
		got, err := decodeMeasured(b, wall)
		if err != nil && got != nil {
			t.Fatal("an error with round trips")
		}
		for _, x := range got {
			if x.Age < 0 || len(x.RTTs) > capacity.MaxRTTs {
				t.Fatalf("%+v", x)
			}
		}
		again, err := encodeMeasured(got, geo.DefaultMaxMeasurementAge, wall)
		if err != nil || len(again) > 0 && !json.Valid(again) {
			t.Fatalf("%s, %v", again, err)
		}
	})
}

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
