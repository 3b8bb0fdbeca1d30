package global

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/internal/timed"
)

// testDrainOfUnlisted drains workers and zones that no spec lists: the region is queried, and a silent region does
// not block the drain.
func (p *testFleet) testDrainOfUnlisted(t *testing.T) {
	c := p.adminClient(p.nodes[0])
	for path, want := range map[string]string{
		"virginia/a/w9": "its workers are w1, w2",
		"virginia/z":    "has no zone",
		"virginia/z/w1": "has no zone",
		"nowhere/a/w1":  "unknown region",
	} {
		_, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: path})
		var e *admin.Error
		if !errors.As(err, &e) || e.Status != 400 || !strings.Contains(err.Error(), want) {
			t.Errorf("drain of %s: %v, want a refusal with %q", path, err, want)
		}
	}
	_, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: "virginia", ForMS: math.MaxInt64 / 1000})
	var e *admin.Error
	if !errors.As(err, &e) || e.Status != 400 || !strings.Contains(err.Error(), "is too long: the longest is") {
		t.Errorf("a drain of a duration that overflows: %v, want a refusal", err)
	}
	for _, path := range []string{"virginia/a/w2", "virginia/b"} {
		out, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: path})
		if err != nil || out.Note != "" {
			t.Errorf("drain of %s: %+v, %v", path, out, err)
		}
	}
	// Zone b is declared and has no instance that could list its workers.
	p.drainUnchecked(t, "virginia/b/w1")
	p.gateways["tokyo"].muted.Store(true)
	defer p.gateways["tokyo"].muted.Store(false)
	begun := time.Now()
	p.drainUnchecked(t, "tokyo/a/w9")
	timed.AssertWithin(t, "a drain in a silent region", time.Since(begun), 2*time.Second)
	for _, path := range []string{"virginia/a/w2", "virginia/b", "virginia/b/w1", "tokyo/a/w9"} {
		if _, err := c.EndDrain(t.Context(), path, "test"); err != nil {
			t.Error(err)
		}
	}
}

func (p *testFleet) drainUnchecked(t *testing.T, path string) {
	t.Helper()
	out, err := p.adminClient(p.nodes[0]).StartDrain(t.Context(), admin.DrainRequest{Path: path})
	if err != nil || !strings.Contains(out.Note, "was not checked") || !containsDrain(out.Drains, path) {
		t.Errorf("drain of %s: %+v, %v; want it taken with a note", path, out, err)
	}
}

func containsDrain(drains []admin.Drain, path string) bool {
	for _, d := range drains {
		if d.Path == path {
			return true
		}
	}
	return false
}

// TestDrainImpact tests what a drain would leave, and which minimum it violates.
func TestDrainImpact(t *testing.T) {
	zones := func(a, b int64) *admin.RegionStatus {
		ready := func(n int64) []admin.ModelStatus { return []admin.ModelStatus{{Name: "m1", Ready: n}} }
		return &admin.RegionStatus{Name: "tokyo", Zones: []admin.ZoneStatus{
			{Name: "a", Models: ready(a), Workers: []admin.WorkerStatus{{Name: "w1", State: "ready", Models: []string{"m1"}}, {Name: "w2", State: "lost", Models: []string{"m1"}}}},
			{Name: "b", Models: ready(b)},
		}}
	}
	two := 2
	half, most := 0.5, 0.9
	for _, c := range []struct {
		name    string
		drained []string
		path    string
		below   *admin.RegionStatus
		minimum func(s *spec.Steering)
		regions [2]int
		zones   [2]int
		workers [2]int64
		refused string
		gradual bool
	}{
		{name: "one region of three", path: "tokyo", regions: [2]int{3, 2}, workers: [2]int64{24, 16}},
		{name: "the second of three", drained: []string{"virginia"}, path: "tokyo", regions: [2]int{2, 1}, workers: [2]int64{16, 8}},
		{name: "the last of three", drained: []string{"virginia", "frankfurt"}, path: "tokyo", regions: [2]int{1, 0}, workers: [2]int64{8, 0}, refused: "drain_min_regions"},
		{name: "two regions are demanded", drained: []string{"virginia"}, path: "tokyo", minimum: func(s *spec.Steering) { s.DrainMinRegions = &two }, regions: [2]int{2, 1}, workers: [2]int64{16, 8}, refused: "drain_min_regions (2)"},
		{name: "most of the capacity is demanded", path: "tokyo", minimum: func(s *spec.Steering) { s.DrainMinCapacity = &most }, regions: [2]int{3, 2}, workers: [2]int64{24, 16}, refused: "67 % for m1"},
		{name: "of the capacity with drained regions half is demanded", drained: []string{"virginia"}, path: "tokyo", minimum: func(s *spec.Steering) { s.DrainMinCapacity = &half }, regions: [2]int{2, 1}, workers: [2]int64{16, 8}, refused: "33 % for m1"},
		{name: "a zone", path: "tokyo/a", below: zones(5, 3), regions: [2]int{3, 3}, zones: [2]int{2, 1}, workers: [2]int64{24, 19}},
		{name: "the last zone of a region", drained: []string{"tokyo/b"}, path: "tokyo/a", below: zones(8, 0), regions: [2]int{3, 2}, zones: [2]int{1, 0}, workers: [2]int64{24, 16}, refused: "drain_min_zones"},
		{name: "a worker", path: "tokyo/a/w1", below: zones(5, 3), regions: [2]int{3, 3}, zones: [2]int{2, 2}, workers: [2]int64{24, 23}},
		{name: "a second zone while the first is being drained gradually", gradual: true, drained: []string{"tokyo/b"}, path: "tokyo/a", below: zones(5, 3), regions: [2]int{3, 2}, zones: [2]int{1, 0}, workers: [2]int64{21, 16}, refused: "drain_min_zones"},
		{name: "the last region while the others are being drained gradually", gradual: true, drained: []string{"virginia", "frankfurt"}, path: "tokyo", regions: [2]int{1, 0}, workers: [2]int64{8, 0}, refused: "drain_min_regions"},
		{name: "a worker that is not ready", path: "tokyo/a/w2", below: zones(5, 3), regions: [2]int{3, 3}, zones: [2]int{2, 2}, workers: [2]int64{24, 24}},
		{name: "what is drained already takes nothing more away", drained: []string{"virginia", "frankfurt", "tokyo"}, path: "tokyo", workers: [2]int64{0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newStaticSnapshot(t)
			st := consensus.State{}
			for _, p := range c.drained {
				d := consensus.Drain{Path: p}
				if c.gradual {
					d.At, d.Over = v.MadeAt, time.Hour
				}
				st.Drains = append(st.Drains, d)
			}
			f := copyPolicy(v)
			f.Spec, _ = spec.Decode("spec", []byte(testSpecText()))
			if c.minimum != nil {
				c.minimum(&f.Spec.Steering)
			}
			v = testSnapshot(f, &st, v.Children, v.Votes, v.MadeAt, true)
			x := computeDrainImpact(v, st.Drains, c.path, c.below)
			if x.Regions != c.regions[0] || x.RegionsLeft != c.regions[1] || x.Zones != c.zones[0] || x.ZonesLeft != c.zones[1] {
				t.Errorf("%+v, want regions %v and zones %v", x, c.regions, c.zones)
			}
			var workers [2]int64
			for _, m := range x.Models {
				workers[0], workers[1] = workers[0]+m.Workers, workers[1]+m.WorkersLeft
			}
			if workers != c.workers {
				t.Errorf("workers %v, want %v", workers, c.workers)
			}
			if text := strings.Join(x.Below, "; "); (c.refused == "") != (text == "") || !strings.Contains(text, c.refused) {
				t.Errorf("below %q, want %q", text, c.refused)
			}
		})
	}
}

// TestSharedWaitRisesWithDemand: the predicted wait rises with demand, and demand beyond capacity is an overload.
func TestSharedWaitRisesWithDemand(t *testing.T) {
	last := 0.0
	for _, tokens := range []float64{0, 1000, 5000, 9000} {
		w := estimateSharedWait(10_000, 4, tokens, tokens/1000)
		if w < last || tokens > 0 && w <= 0 {
			t.Errorf("%g tokens/s wait %g s, fewer %g s", tokens, w, last)
		}
		last = w
	}
	if w := estimateSharedWait(10_000, 4, 10_000, 10); w != -1 {
		t.Errorf("an overload waits %g s", w)
	}
	if w := estimateSharedWait(0, 0, 10, 1); w != -1 {
		t.Errorf("without workers the wait is %g s", w)
	}
}

// TestRegionOfDrainedZonesIsDrained: a region all of whose zones are drained gets no clients while another can serve
// them.
func TestRegionOfDrainedZonesIsDrained(t *testing.T) {
	v := newStaticSnapshot(t)
	client := netip.MustParseAddr(clientAddrs["tokyo"])
	answer := func(drains ...consensus.Drain) netip.Addr {
		x := testSnapshot(v.policy, &consensus.State{Drains: drains}, v.Children, v.Votes, v.MadeAt, true)
		x.Plan, x.Table = v.Plan, v.Table
		return x.AnswerService(0, client).Addrs[0]
	}
	a, b := consensus.Drain{Path: "tokyo/a"}, consensus.Drain{Path: "tokyo/b"}
	over := consensus.Drain{Path: "tokyo/b", Until: v.MadeAt}
	if got := answer(a); got != testGatewayAddrs["tokyo"] {
		t.Errorf("with one of two zones drained the answer is %s", got)
	}
	if got := answer(a, b); got == testGatewayAddrs["tokyo"] {
		t.Error("with both zones drained the region is answered")
	}
	if got := answer(a, over); got != testGatewayAddrs["tokyo"] {
		t.Errorf("when the drain of a zone is over the answer is %s", got)
	}
}

// TestOrphanDrains: drains of paths that are not in the spec are found, others are not; a snapshot older than the state
// finds none.
func TestOrphanDrains(t *testing.T) {
	v := newStaticSnapshot(t)
	v.source, v.Version, v.state = agreedState, 3, &consensus.State{SpecVersion: 3, Index: 9}
	var drains []consensus.Drain
	for _, p := range []string{"atlantis", "atlantis/a/w1", "tokyo", "tokyo/a", "tokyo/a/w9", "tokyo/z"} {
		drains = append(drains, consensus.Drain{Path: p})
	}
	var got []string
	for _, d := range findOrphanDrains(v, &consensus.State{SpecVersion: 3, Index: 9, Drains: drains}) {
		got = append(got, d.Path)
	}
	if want := "atlantis atlantis/a/w1 tokyo/z"; strings.Join(got, " ") != want {
		t.Errorf("orphans are %v, want %s", got, want)
	}
	for _, st := range []consensus.State{{SpecVersion: 4, Index: 10}, {SpecVersion: 3, Index: 10}} {
		if st.Drains = drains; len(findOrphanDrains(v, &st)) > 0 {
			t.Errorf("spec %d, index %d: drains are orphans by an older View", st.SpecVersion, st.Index)
		}
	}
}

// TestDrainsEndWithTheirRegion: when a spec no longer has a region, its drain ends, and other drains stay.
func TestDrainsEndWithTheirRegion(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	c := p.adminClient(p.nodes[1])
	apply := func(text string) {
		t.Helper()
		if _, err := c.ApplySpec(t.Context(), admin.ApplyRequest{Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	apply(strings.Replace(testSpecText(), "models:", `  - {name: atlantis, place: {city: X, lat: 1, lon: 1}, gateways: [{name: ga, addresses: [127.0.5.1], url: "http://127.0.5.1:8080"}]}
models:`, 1))
	for _, path := range []string{"atlantis", "tokyo"} {
		testkit.Eventually(t, path+" is drained", func() bool {
			out, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: path, Force: true, Replace: true})
			return err == nil && containsDrain(out.Drains, path)
		})
	}
	apply(testSpecText())
	testkit.Eventually(t, "the drain of the region that is gone ends", func() bool {
		return !containsDrain(toAdminDrains(p.nodes[1].node.State().Drains), "atlantis")
	})
	if drains := toAdminDrains(p.nodes[1].node.State().Drains); !containsDrain(drains, "tokyo") {
		t.Errorf("drains are %+v, want that of tokyo", drains)
	}
}

// TestUnreachableRegionShowsNoReadyWorkers: status shows the region as lost, with no ready workers.
func TestUnreachableRegionShowsNoReadyWorkers(t *testing.T) {
	v := newStaticSnapshot(t)
	for r := range v.Regions {
		v.Regions[r].Group.State = capacity.Unreachable
		if out := knownRegionStatus(v, r); len(out.Models) != 0 || !strings.Contains(out.Note, "unreachable") {
			t.Errorf("%+v", out)
		}
	}
}

// testDrainSafety drains twice, drains too much, and does a dry run.
func (p *testFleet) testDrainSafety(t *testing.T) {
	c, other := p.adminClient(p.nodes[0]), p.adminClient(p.nodes[1])
	refused := func(r admin.DrainRequest, want string) {
		t.Helper()
		_, err := other.StartDrain(t.Context(), r)
		var e *admin.Error
		if !errors.As(err, &e) || e.Status != 409 || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want a refusal with %q", r, err, want)
		}
	}
	out, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: "tokyo", DryRun: true})
	if err != nil || len(out.Drains) != 0 || out.Impact == nil || out.Impact.RegionsLeft != 2 || len(out.Impact.Models) != 1 || out.Impact.Models[0].WorkersLeft != 16 {
		t.Fatalf("dry run: %+v, %v", out, err)
	}
	if _, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: "tokyo", ForMS: 600_000, Reason: "power"}); err != nil {
		t.Fatal(err)
	}
	refused(admin.DrainRequest{Path: "tokyo", Reason: "network"}, "power")
	refused(admin.DrainRequest{Path: "tokyo", Reason: "network", Force: true}, "--replace")
	if out, err := other.StartDrain(t.Context(), admin.DrainRequest{Path: "tokyo", Reason: "network", Replace: true}); err != nil || out.Drains[0].Reason != "network" || !out.Drains[0].Until.IsZero() {
		t.Errorf("replacing: %+v, %v", out, err)
	}
	if _, err := c.StartDrain(t.Context(), admin.DrainRequest{Path: "frankfurt"}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the other node shows both drains", func() bool { return len(p.nodes[1].snapshot.Load().state.Drains) == 2 })
	refused(admin.DrainRequest{Path: "virginia"}, "drain_min_regions")
	if out, err := other.StartDrain(t.Context(), admin.DrainRequest{Path: "virginia", Force: true}); err != nil || !strings.Contains(out.Note, "every region is drained") {
		t.Errorf("forced: %+v, %v", out, err)
	}
	for _, name := range []string{"virginia", "frankfurt", "tokyo"} {
		if out, err := other.EndDrain(t.Context(), name, "test"); err != nil || out.Note != "" {
			t.Errorf("undrain of %s: %+v, %v; want no note", name, out, err)
		}
	}
	testkit.Eventually(t, "each client has its own region", p.allNearest)
}

// TestGradualDrainOfARegion: at half-time about half of the networks that a region serves are answered with another,
// answers from before the drain are not reused, and at the end the region is drained.
func TestGradualDrainOfARegion(t *testing.T) {
	v := newStaticSnapshot(t)
	tokyo, cell := v.RegionIndex("tokyo"), v.atlas.Locate(netip.MustParseAddr(clientAddrs["tokyo"])).Cell
	count := func(v *nodeSnapshot) (n int) {
		for i := range 256 {
			if r, _, _ := v.pickCached(0, cell, netip.AddrFrom4([4]byte{10, 0, byte(i), 1})); r == tokyo {
				n++
			}
		}
		return n
	}
	at := func(after time.Duration, memory *pickCache, drains ...consensus.Drain) *nodeSnapshot {
		x := testSnapshot(v.policy, &consensus.State{Drains: drains}, v.Children, v.Votes, v.MadeAt.Add(after), true)
		x.Plan, x.Table = v.Plan, v.Table
		x.pickCache = memory.reuseFor(x)
		return x
	}
	d := consensus.Drain{Path: "tokyo", At: v.MadeAt, Over: 10 * time.Minute}
	before := at(0, nil)
	usual := count(before)
	half := at(5*time.Minute, before.pickCache, d)
	if got := float64(count(half)) / float64(usual); usual != 256 || got < 0.4 || got > 0.6 {
		t.Errorf("at half-time %.2f of %d networks stay", got, usual)
	}
	if half.Regions[tokyo].Drained || half.RegionStateName(tokyo) == "draining" {
		t.Error("the region counts as drained at half-time")
	}
	if end := at(10*time.Minute, half.pickCache, d); count(end) != 0 || !end.Drained.Has(tokyo) {
		t.Errorf("at the end %d networks stay", count(end))
	}
	if back := at(5*time.Minute, half.pickCache); count(back) != usual {
		t.Errorf("undrained, %d of %d networks are back", count(back), usual)
	}
}

// testDrainRace drains two of three regions at two nodes at once, where two must be left: one drain is refused each
// time.
func (p *testFleet) testDrainRace(t *testing.T) {
	c := p.adminClient(p.nodes[0])
	apply := func(text string) {
		t.Helper()
		if _, err := c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	apply(strings.Replace(testSpecText(), "steering: {", "steering: {drain_min_regions: 2, ", 1))
	for _, s := range p.liveNodes() {
		testkit.Eventually(t, "the minimum is in force", func() bool { m := s.snapshot.Load().Spec.Steering.DrainMinRegions; return m != nil && *m == 2 })
	}
	paths := []string{"virginia", "frankfurt"}
	for round := range 10 {
		var wg sync.WaitGroup
		var errs [2]error
		for i := range paths {
			admins := p.adminClient(p.nodes[i])
			wg.Go(func() { _, errs[i] = admins.StartDrain(t.Context(), admin.DrainRequest{Path: paths[i]}) })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Errorf("round %d: %v and %v, want one refusal", round, errs[0], errs[1])
		}
		for i := range paths {
			if errs[i] == nil {
				if _, err := c.EndDrain(t.Context(), paths[i], "test"); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, s := range p.liveNodes() {
			testkit.Eventually(t, "no drain is left", func() bool { v := s.snapshot.Load(); return len(v.state.Drains) == 0 && v.Drained.IsEmpty() })
		}
	}
	apply(testSpecText())
	testkit.Eventually(t, "each client has its own region", p.allNearest)
}
