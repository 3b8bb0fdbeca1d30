package global

import (
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// testDrainBelow drains what no spec lists: the region is asked, and a region that is silent is not in the way.
func (p *planet) testDrainBelow(t *testing.T) {
	c := p.admin(p.nodes[0])
	for path, want := range map[string]string{
		"virginia/a/w9": "its workers are w1, w2",
		"virginia/z":    "has no zone",
		"virginia/z/w1": "has no zone",
		"nowhere/a/w1":  "unknown region",
	} {
		_, err := c.Drain(t.Context(), admin.DrainRequest{Path: path})
		var e *admin.Error
		if !errors.As(err, &e) || e.Status != 400 || !strings.Contains(err.Error(), want) {
			t.Errorf("drain of %s: %v, want a refusal that says %q", path, err, want)
		}
	}
	_, err := c.Drain(t.Context(), admin.DrainRequest{Path: "virginia", ForMS: math.MaxInt64 / 1000})
	var e *admin.Error
	if !errors.As(err, &e) || e.Status != 400 || !strings.Contains(err.Error(), "longer than the longest") {
		t.Errorf("a drain of a duration that overflows: %v, want a refusal", err)
	}
	for _, path := range []string{"virginia/a/w2", "virginia/b"} {
		out, err := c.Drain(t.Context(), admin.DrainRequest{Path: path})
		if err != nil || out.Note != "" {
			t.Errorf("drain of %s: %+v, %v", path, out, err)
		}
	}
	// Zone b is declared, and nobody stands over it that could list its workers.
	p.drainUnchecked(t, "virginia/b/w1")
	p.gates["tokyo"].mute.Store(true)
	defer p.gates["tokyo"].mute.Store(false)
	begun := time.Now()
	p.drainUnchecked(t, "tokyo/a/w9")
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("a silent region held a drain up for %s", took)
	}
	for _, path := range []string{"virginia/a/w2", "virginia/b", "virginia/b/w1", "tokyo/a/w9"} {
		if _, err := c.Undrain(t.Context(), path, "test"); err != nil {
			t.Error(err)
		}
	}
}

func (p *planet) drainUnchecked(t *testing.T, path string) {
	t.Helper()
	out, err := p.admin(p.nodes[0]).Drain(t.Context(), admin.DrainRequest{Path: path})
	if err != nil || !strings.Contains(out.Note, "not looked for") || !listedIn(out.Drains, path) {
		t.Errorf("drain of %s: %+v, %v; want it taken with a note", path, out, err)
	}
}

func listedIn(drains []admin.Drain, path string) bool {
	for _, d := range drains {
		if d.Path == path {
			return true
		}
	}
	return false
}

// TestDrainImpact: what a drain would leave, and which minimum it falls below.
func TestDrainImpact(t *testing.T) {
	zones := func(a, b int64) *admin.RegionStatus {
		ready := func(n int64) []admin.ModelStatus { return []admin.ModelStatus{{Name: "m1", Ready: n}} }
		return &admin.RegionStatus{Zones: []admin.ZoneStatus{
			{Name: "a", Models: ready(a), Workers: []admin.WorkerStatus{{Name: "w1", State: "ready", Models: []string{"m1"}}, {Name: "w2", State: "lost", Models: []string{"m1"}}}},
			{Name: "b", Models: ready(b)},
		}}
	}
	two := 2
	most := 0.9
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
	}{
		{name: "one region of three", path: "tokyo", regions: [2]int{3, 2}, workers: [2]int64{24, 16}},
		{name: "the second of three", drained: []string{"virginia"}, path: "tokyo", regions: [2]int{2, 1}, workers: [2]int64{16, 8}},
		{name: "the last of three", drained: []string{"virginia", "frankfurt"}, path: "tokyo", regions: [2]int{1, 0}, workers: [2]int64{8, 0}, refused: "drain_min_regions"},
		{name: "two regions are demanded", drained: []string{"virginia"}, path: "tokyo", minimum: func(s *spec.Steering) { s.DrainMinRegions = &two }, regions: [2]int{2, 1}, workers: [2]int64{16, 8}, refused: "drain_min_regions is 2"},
		{name: "most of the capacity is demanded", path: "tokyo", minimum: func(s *spec.Steering) { s.DrainMinCapacity = &most }, regions: [2]int{3, 2}, workers: [2]int64{24, 16}, refused: "m1 67 %"},
		{name: "a zone", path: "tokyo/a", below: zones(5, 3), regions: [2]int{3, 3}, zones: [2]int{2, 1}, workers: [2]int64{24, 19}},
		{name: "the last zone of a region", drained: []string{"tokyo/b"}, path: "tokyo/a", below: zones(8, 0), regions: [2]int{3, 2}, zones: [2]int{1, 0}, workers: [2]int64{24, 16}, refused: "drain_min_zones"},
		{name: "a worker", path: "tokyo/a/w1", below: zones(5, 3), regions: [2]int{3, 3}, zones: [2]int{2, 2}, workers: [2]int64{24, 23}},
		{name: "a worker that is not ready", path: "tokyo/a/w2", below: zones(5, 3), regions: [2]int{3, 3}, zones: [2]int{2, 2}, workers: [2]int64{24, 24}},
		{name: "what is drained already takes nothing more away", drained: []string{"virginia", "frankfurt", "tokyo"}, path: "tokyo", workers: [2]int64{0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := stillView(t)
			st := consensus.State{}
			for _, p := range c.drained {
				st.Drains = append(st.Drains, consensus.Drain{Path: p})
			}
			f := *v.frame
			f.spec, _ = spec.Decode("spec", []byte(specText()))
			if c.minimum != nil {
				c.minimum(&f.spec.Steering)
			}
			v = newView(&f, &st, v.children, v.quorum, v.made, true)
			x := v.drainImpact(c.path, c.below)
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

// TestPoolWait: the predicted wait rises with demand, and demand beyond capacity is an overload.
func TestPoolWait(t *testing.T) {
	last := 0.0
	for _, tokens := range []float64{0, 1000, 5000, 9000} {
		w := poolWait(10_000, 4, tokens, tokens/1000)
		if w < last || tokens > 0 && w <= 0 {
			t.Errorf("%g tokens/s wait %g s, fewer %g s", tokens, w, last)
		}
		last = w
	}
	if w := poolWait(10_000, 4, 10_000, 10); w != -1 {
		t.Errorf("an overload waits %g s", w)
	}
	if w := poolWait(0, 0, 10, 1); w != -1 {
		t.Errorf("without workers the wait is %g s", w)
	}
}

// TestRegionOfDrainedZonesIsDrained: a region all of whose zones are drained gets no clients while another takes some.
func TestRegionOfDrainedZonesIsDrained(t *testing.T) {
	v := stillView(t)
	client := netip.MustParseAddr(clients["tokyo"])
	answer := func(drains ...consensus.Drain) netip.Addr {
		x := newView(v.frame, &consensus.State{Drains: drains}, v.children, v.quorum, v.made, true)
		x.plan, x.table = v.plan, v.table
		return x.Answer(0, client).Addrs[0]
	}
	a, b := consensus.Drain{Path: "tokyo/a"}, consensus.Drain{Path: "tokyo/b"}
	over := consensus.Drain{Path: "tokyo/b", Until: v.made}
	if got := answer(a); got != gatewayAddr["tokyo"] {
		t.Errorf("with one of two zones drained the answer is %s", got)
	}
	if got := answer(a, b); got == gatewayAddr["tokyo"] {
		t.Error("with both zones drained the region is answered")
	}
	if got := answer(a, over); got != gatewayAddr["tokyo"] {
		t.Errorf("when the drain of a zone is over the answer is %s", got)
	}
}

// TestOrphanDrains: drains of what the spec does not have are found, others are not.
func TestOrphanDrains(t *testing.T) {
	v := stillView(t)
	var drains []consensus.Drain
	for _, p := range []string{"atlantis", "atlantis/a/w1", "tokyo", "tokyo/a", "tokyo/a/w9", "tokyo/z"} {
		drains = append(drains, consensus.Drain{Path: p})
	}
	var got []string
	for _, d := range orphans(v.spec, drains) {
		got = append(got, d.Path)
	}
	if want := "atlantis atlantis/a/w1 tokyo/z"; strings.Join(got, " ") != want {
		t.Errorf("orphans are %v, want %s", got, want)
	}
}

// TestLostRegionShowsNoLiveNumbers: status calls it lost and shows no ready workers.
func TestLostRegionShowsNoLiveNumbers(t *testing.T) {
	v := stillView(t)
	for r := range v.regions {
		v.regions[r].group.State = capacity.Lost
		if out := v.known(r); len(out.Models) != 0 || !strings.Contains(out.Note, "unreachable") {
			t.Errorf("%+v", out)
		}
	}
}

// testDrainSafety drains twice, too much, and only to look.
func (p *planet) testDrainSafety(t *testing.T) {
	c, other := p.admin(p.nodes[0]), p.admin(p.nodes[1])
	refused := func(r admin.DrainRequest, want string) {
		t.Helper()
		_, err := other.Drain(t.Context(), r)
		var e *admin.Error
		if !errors.As(err, &e) || e.Status != 409 || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want a refusal that says %q", r, err, want)
		}
	}
	out, err := c.Drain(t.Context(), admin.DrainRequest{Path: "tokyo", DryRun: true})
	if err != nil || len(out.Drains) != 0 || out.Impact == nil || out.Impact.RegionsLeft != 2 || len(out.Impact.Models) != 1 || out.Impact.Models[0].WorkersLeft != 16 {
		t.Fatalf("dry run: %+v, %v", out, err)
	}
	if _, err := c.Drain(t.Context(), admin.DrainRequest{Path: "tokyo", ForMS: 600_000, Reason: "power"}); err != nil {
		t.Fatal(err)
	}
	refused(admin.DrainRequest{Path: "tokyo", Reason: "network"}, "power")
	refused(admin.DrainRequest{Path: "tokyo", Reason: "network", Force: true}, "--replace")
	if out, err := other.Drain(t.Context(), admin.DrainRequest{Path: "tokyo", Reason: "network", Replace: true}); err != nil || out.Drains[0].Reason != "network" || !out.Drains[0].Until.IsZero() {
		t.Errorf("replacing: %+v, %v", out, err)
	}
	if _, err := c.Drain(t.Context(), admin.DrainRequest{Path: "frankfurt"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Second, "the other node shows both drains", func() bool { return len(p.nodes[1].view.Load().state.Drains) == 2 })
	refused(admin.DrainRequest{Path: "virginia"}, "drain_min_regions")
	if out, err := other.Drain(t.Context(), admin.DrainRequest{Path: "virginia", Force: true}); err != nil || !strings.Contains(out.Note, "every region is drained") {
		t.Errorf("forced: %+v, %v", out, err)
	}
	for _, name := range []string{"virginia", "frankfurt", "tokyo"} {
		if out, err := other.Undrain(t.Context(), name, "test"); err != nil || out.Note != "" {
			t.Errorf("undrain of %s: %+v, %v; want no note", name, out, err)
		}
	}
	eventually(t, 5*time.Second, "each client has its own region", p.allNearest)
}
