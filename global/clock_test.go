package global

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/global/liveness"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// TestClockEstimateTable has a row for each case that is not obvious.
func TestClockEstimateTable(t *testing.T) {
	const hour, tick = time.Hour, 10 * time.Millisecond
	for name, c := range map[string]struct {
		voters   string
		offsets  map[string]time.Duration
		ahead    time.Duration
		compared bool
	}{
		"alone":                             {"g1", nil, 0, false},
		"single voter with an edge node":    {"g1", map[string]time.Duration{"edge": hour}, 0, false},
		"all agree":                         {"g1 g2 g3", map[string]time.Duration{"g2": -tick, "g3": tick}, 0, true},
		"this one is ahead":                 {"g1 g2 g3", map[string]time.Duration{"g2": -hour, "g3": -hour + tick}, hour - tick, true},
		"this one is behind":                {"g1 g2 g3", map[string]time.Duration{"g2": hour, "g3": hour}, -hour, true},
		"another is ahead":                  {"g1 g2 g3", map[string]time.Duration{"g2": hour, "g3": tick}, -tick, true},
		"two of three, apart":               {"g1 g2 g3", map[string]time.Duration{"g2": hour}, -hour / 2, true},
		"one of three":                      {"g1 g2 g3", nil, 0, false},
		"two of four are no majority":       {"g1 g2 g3 g4", map[string]time.Duration{"g2": -hour}, 0, false},
		"three of four":                     {"g1 g2 g3 g4", map[string]time.Duration{"g2": -hour, "g3": -hour}, hour, true},
		"edges do not count":                {"g1 g2 g3", map[string]time.Duration{"e1": -hour, "e2": -hour, "g2": 0}, 0, true},
		"edges make no majority":            {"g1 g2 g3", map[string]time.Duration{"e1": -hour, "e2": -hour}, 0, false},
		"no vote itself":                    {"g2 g3", map[string]time.Duration{"g2": -hour, "g3": -hour}, hour, true},
		"absurd clocks do not overflow":     {"g1 g2 g3 g4", map[string]time.Duration{"g2": liveness.MaxClockOffset, "g3": liveness.MaxClockOffset, "g4": -liveness.MaxClockOffset}, -liveness.MaxClockOffset / 2, true},
		"five, two of which lie either way": {"g1 g2 g3 g4 g5", map[string]time.Duration{"g2": hour, "g3": hour, "g4": tick, "g5": 0}, -tick, true},
	} {
		got := estimateClock("g1", strings.Fields(c.voters), c.offsets)
		if got.ahead != c.ahead || got.compared != c.compared {
			t.Errorf("%s: ahead by %s, compared %v; want %s, %v", name, got.ahead, got.compared, c.ahead, c.compared)
		}
	}
}

// TestClockEstimateIsTheVotersMedian: if a majority of the known clocks is right, the error of the estimate is at
// most their spread, independent of the other clocks. Without a majority of the voters nothing is compared.
func TestClockEstimateIsTheVotersMedian(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		voters := rapid.IntRange(1, 9).Draw(t, "voters")
		var names []string
		for i := range voters {
			names = append(names, fmt.Sprint("g", i))
		}
		known := rapid.IntRange(1, voters).Draw(t, "known") // g0 is this node
		selfTrue := rapid.Bool().Draw(t, "this clock is true")
		truth := time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(t, "true offset"))
		if selfTrue {
			truth = 0
		}
		right := 0
		if selfTrue {
			right++
		}
		offsets := map[string]time.Duration{}
		for _, name := range names[1:known] {
			if rapid.Bool().Draw(t, name+" is true") {
				right++
				offsets[name] = truth + time.Duration(rapid.Int64Range(-1e6, 1e6).Draw(t, name+" noise"))
			} else {
				offsets[name] = time.Duration(rapid.Int64Range(-int64(liveness.MaxClockOffset), int64(liveness.MaxClockOffset)).Draw(t, name))
			}
		}
		offsets["edge"] = time.Duration(rapid.Int64Range(-1e18, 1e18).Draw(t, "edge"))
		got := estimateClock("g0", names, offsets)
		if got.known != known || got.compared != (voters > 1 && 2*known > voters) {
			t.Fatalf("%d of %d: %+v", known, voters, got)
		}
		if !got.compared && got.ahead != 0 {
			t.Fatalf("not compared, and ahead by %s", got.ahead)
		}
		if got.compared && 2*right > known && (got.ahead+truth).Abs() > time.Millisecond {
			t.Fatalf("ahead by %s, want %s: %v", got.ahead, -truth, offsets)
		}
	})
}

// TestTimedDutiesWaitForTheClock tests when timed duties are suspended.
func TestTimedDutiesWaitForTheClock(t *testing.T) {
	right, wrong := clockEstimate{voters: 3, known: 3, compared: true, ahead: clockTolerance}, clockEstimate{voters: 3, known: 2, compared: true, ahead: -clockTolerance - 1}
	alone, unknown := clockEstimate{voters: 1, known: 1}, clockEstimate{voters: 3, known: 1}
	const tick = time.Second
	for name, c := range map[string]struct {
		steps []clockEstimate // one each second
		want  string          // the duties at each step: go on or wait
	}{
		"alone":                      {[]clockEstimate{alone, alone}, "gg"},
		"right":                      {[]clockEstimate{right, right}, "gg"},
		"wrong":                      {[]clockEstimate{wrong, right, wrong}, "wgw"},
		"unknown at first":           {[]clockEstimate{unknown, unknown, right}, "wwg"},
		"unknown for too long":       {slices.Repeat([]clockEstimate{unknown}, 12), "wwwwwwwwwwgg"},
		"unknown after being right":  {[]clockEstimate{right, unknown, unknown}, "ggg"},
		"unknown after being wrong":  {slices.Concat([]clockEstimate{wrong}, slices.Repeat([]clockEstimate{unknown}, 12), []clockEstimate{right}), "wwwwwwwwwwwwwg"},
		"wrong, then no other clock": {[]clockEstimate{wrong, alone}, "wg"},
		"late to compare with others after a start": {append(slices.Repeat([]clockEstimate{unknown}, 11), wrong, unknown), "wwwwwwwwwwgww"},
	} {
		var g clockGuard
		now, got := time.Unix(1e9, 0), ""
		for _, e := range c.steps {
			s := g.updateState(e, nil, now)
			if s.holdsDuties() {
				got += "w"
			} else {
				got += "g"
			}
			if s.wrong && s.clockCorrection() != -wrong.ahead || !s.wrong && s.clockCorrection() != 0 {
				t.Errorf("%s: corrected by %s", name, s.clockCorrection())
			}
			if s.describeClock() == "" || strings.Contains(s.describeClock(), "while this node leads") != s.wrong {
				t.Errorf("%s: %q", name, s.describeClock())
			}
			now = now.Add(tick)
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestClockStateWithoutComparison(t *testing.T) {
	var none *clockState
	if none.holdsDuties() || none.clockCorrection() != 0 || none.adminStatus() != nil || none.offsetMS("g1", "g1") != nil || none.describeClock() != "" {
		t.Error("a node that has not compared anything shows a clock")
	}
}

// TestClocksInPeerReports: a changed clock alone triggers nothing, a node that sends none is left out, an old one
// does not count, and a step of this node's own clock shows at once.
func TestClocksInPeerReports(t *testing.T) {
	woken := 0
	b := newPeerReports(func() { woken++ })
	now := time.Now()
	send := func(from string, at time.Time, clock int64) {
		body, err := json.Marshal(liveness.PeerReport{Settled: true, Reachable: []string{"a/g"}, ClockMS: clock})
		if err != nil {
			t.Fatal(err)
		}
		b.putReportAt(from, body, at)
	}
	send("g2", now, now.UnixMilli())
	send("g2", now.Add(500*time.Millisecond), now.UnixMilli()+500+7000)
	b.putReportAt("g3", []byte(`{"settled":true,"heard":["a/g"]}`), now)
	send("g4", now.Add(-liveness.ReportLifetime), now.UnixMilli())
	if woken != 3 {
		t.Errorf("woken %d times by 3 nodes", woken)
	}
	seconds := func(at, wall time.Time) string {
		var out []string
		for name, d := range b.clockOffsets(at, wall) {
			out = append(out, fmt.Sprintf("%s%+.0f", name, d.Seconds()))
		}
		return strings.Join(out, " ")
	}
	later := now.Add(900 * time.Millisecond)
	if got := seconds(later, later); got != "g2+7" {
		t.Errorf("offsets %q", got)
	}
	if got := seconds(later, later.Add(time.Hour)); got != "g2-3593" {
		t.Errorf("offsets after a step by an hour %q", got)
	}
}

// TestTimedDutiesAreDueByWallTime has a row for each timed duty.
func TestTimedDutiesAreDueByWallTime(t *testing.T) {
	now := time.Unix(1e9, 0)
	key := func(age time.Duration) []consensus.TicketKey {
		return []consensus.TicketKey{{At: now.Add(-age)}, {At: now.Add(-90 * 24 * time.Hour)}}
	}
	for name, c := range map[string]struct {
		st   consensus.State
		want timedDuties
	}{
		"nothing":               {consensus.State{}, timedDuties{}},
		"a new key":             {consensus.State{TicketKeys: key(ticketKeyRotation)}, timedDuties{}},
		"an old key":            {consensus.State{TicketKeys: key(ticketKeyRotation + 1)}, timedDuties{rotateKey: true}},
		"a key a little ahead":  {consensus.State{TicketKeys: key(-clockTolerance)}, timedDuties{}},
		"a key of next year":    {consensus.State{TicketKeys: key(-365 * 24 * time.Hour)}, timedDuties{rotateKey: true}},
		"a step that is due":    {consensus.State{Signing: &consensus.ZoneSigning{StepDueAt: now}}, timedDuties{stepSigning: true}},
		"a step that waits":     {consensus.State{Signing: &consensus.ZoneSigning{StepDueAt: now.Add(1)}}, timedDuties{}},
		"a drain that ended":    {consensus.State{Drains: []consensus.Drain{{Path: "a"}, {Path: "b", Until: now}}}, timedDuties{endDrains: true}},
		"drains that go on":     {consensus.State{Drains: []consensus.Drain{{Path: "a"}, {Path: "b", Until: now.Add(1)}}}, timedDuties{}},
		"drain before one that": {consensus.State{Drains: []consensus.Drain{{Path: "a", Until: now.Add(-1)}, {Path: "b"}}}, timedDuties{endDrains: true}},
	} {
		if got := findDueDuties(&c.st, now); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// skewedClocks gives each node its own wall clock and log.
func skewedClocks() (clocks map[string]*atomic.Int64, logs map[string]*testkit.LogBuffer, tune func(*Config)) {
	clocks, logs = map[string]*atomic.Int64{}, map[string]*testkit.LogBuffer{}
	return clocks, logs, func(c *Config) {
		offset, log := new(atomic.Int64), new(testkit.LogBuffer)
		clocks[c.Name], logs[c.Name] = offset, log
		c.WallClock = func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
		c.Log = newTextLog(log)
	}
}

func readGauge(t *testing.T, s *Server, name string) (v float64, ok bool) {
	t.Helper()
	families, err := s.cfg.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue(), true
		}
	}
	return 0, false
}

// TestLeaderWithWrongClockSkipsTimedDuties steps the leader's clock an hour ahead while a drain has half an hour
// left: the drain stays in force everywhere, including the leader's own answers. When all clocks are an hour ahead it
// ends.
func TestLeaderWithWrongClockSkipsTimedDuties(t *testing.T) {
	t.Parallel()
	clocks, logs, tune := skewedClocks()
	p := newTestFleetWith(t, testSpecText(), tune)
	p.awaitAllRegions()
	lead := p.awaitLeader()
	name := lead.cfg.Name
	testkit.Eventually(t, "all clocks are compared", func() bool {
		for _, s := range p.nodes {
			if c := s.clock.Load(); c == nil || c.known != 3 || c.wrong {
				return false
			}
		}
		return true
	})
	if _, err := p.adminClient(lead).StartDrain(t.Context(), admin.DrainRequest{Path: "tokyo", ForMS: (30 * time.Minute).Milliseconds()}); err != nil {
		t.Fatal(err)
	}
	keys := len(lead.node.State().TicketKeys)

	const warning = "the leader's wall clock is wrong"
	clocks[name].Store(int64(48 * time.Hour)) // long enough for a rotation of the ticket key too
	testkit.Eventually(t, "the leader warns", func() bool { return strings.Count(logs[name].String(), warning) == 1 })
	v := lead.snapshot.Load()
	testkit.Eventually(t, "the leader's View is of after the step", func() bool { return lead.snapshot.Load() != v })
	if !lead.IsLeader() {
		t.Skip("another node leads by now: the machine is too busy")
	}
	for _, s := range p.nodes {
		st := s.node.State()
		if v := s.snapshot.Load(); len(st.Drains) != 1 || len(st.TicketKeys) != keys || !v.Regions[v.RegionIndex("tokyo")].Drained {
			t.Errorf("%s: %d drains, %d keys, was %d; tokyo drained in its answers: %v", s.cfg.Name, len(st.Drains), len(st.TicketKeys), keys, v.Regions[v.RegionIndex("tokyo")].Drained)
		}
	}
	if got, ok := readGauge(t, lead, "spillway_global_clock_ahead_seconds"); !ok || math.Abs(got-48*3600) > 5 {
		t.Errorf("the metric is %v, %v", got, ok)
	}
	st, err := p.adminClient(lead).GetStatus(t.Context())
	if err != nil || !strings.Contains(strings.Join(st.Notes, "\n"), "this node's clock: 172") || st.Raft.Clock == nil || !st.Raft.Clock.DutiesWait {
		t.Errorf("status notes %q, %v", st.Notes, err)
	}
	for _, s := range p.nodes {
		if s == lead {
			continue
		}
		c := p.adminClient(s)
		testkit.Eventually(t, s.cfg.Name+" shows that the leader's clock is wrong, and its own is not", func() bool {
			m, err := c.ListMembers(t.Context())
			if err != nil || m.Clock == nil || m.Clock.DutiesWait || len(m.Members) != 3 {
				return false
			}
			return !slices.ContainsFunc(m.Members, func(x admin.Member) bool {
				want := 0.0
				if x.Name == name {
					want = 48 * 3600
				}
				return x.ClockOffsetMS == nil || math.Abs(float64(*x.ClockOffsetMS)/1000-want) > 5
			})
		})
	}

	for _, c := range clocks {
		c.Store(int64(time.Hour))
	}
	testkit.Eventually(t, "the drain ends once its time has come by all clocks", func() bool { return len(lead.node.State().Drains) == 0 })
	if n := strings.Count(logs[name].String(), warning); n != 1 {
		t.Errorf("%d warnings in less than a minute", n)
	}
}

// TestFirstTicketKeyDoesNotWaitForClocks: two voters an hour apart are both wrong by the median, and redirects still
// work.
func TestFirstTicketKeyDoesNotWaitForClocks(t *testing.T) {
	t.Parallel()
	p, peers := newUnstartedFleet(t)
	clocks, _, tune := skewedClocks()
	p.configure = func(c *Config) {
		tune(c)
		if c.Name == "g2" {
			clocks[c.Name].Store(int64(time.Hour))
		}
	}
	for i := range 2 {
		p.nodes = append(p.nodes, p.startNode(peers[:2], i, ""))
	}
	lead := p.awaitLeader()
	testkit.Eventually(t, "there is a key while the clock is wrong", func() bool {
		c := lead.clock.Load()
		return c.wrong && len(lead.node.State().TicketKeys) == 1
	})
	if !lead.clock.Load().holdsDuties() {
		t.Error("timed duties take place")
	}
}

func newTextLog(to *testkit.LogBuffer) *slog.Logger { return slog.New(slog.NewTextHandler(to, nil)) }
