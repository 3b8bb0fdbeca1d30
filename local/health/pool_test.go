package health

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDoubtsTakeOutHalfAndNeverTheLast(t *testing.T) {
	if (Config{MaxEjected: 1}).MayEject(Soft, 3, 4) {
		t.Error("the last worker of four may go")
	}
	for _, c := range []struct {
		kind       Kind
		out, total int
		want       bool
	}{
		{Soft, 0, 1, false},
		{Soft, 0, 2, true},
		{Soft, 1, 2, false},
		{Slow, 1, 4, true},
		{Erring, 2, 4, false},
		{Refused, 1, 4, true},
		{Refused, 2, 4, false},
		{Broken, 0, 1, true},
		{Refused, 1, 2, false},
		{Refused, 0, 3, true},
		{Broken, 2, 4, false},
		{OOM, 2, 4, false},
		{Stalled, 2, 4, false},
		{Probe, 3, 4, true},
		{GPU, 0, 1, true},
		{DeepProbe, 3, 4, true},
	} {
		if got := (Config{}).MayEject(c.kind, c.out, c.total); got != c.want {
			t.Errorf("%s with %d of %d out: %v, want %v", c.kind, c.out, c.total, got, c.want)
		}
	}
}

// crew is a pool as its shell keeps it.
type crew struct {
	cfg Config
	all []*Breaker
}

func newCrew(n int, cfg Config) *crew {
	c := &crew{cfg: cfg}
	for i := range n {
		c.all = append(c.all, New(cfg, rand.New(rand.NewPCG(uint64(i), 3))))
	}
	return c
}

func (c *crew) taking() (n int) {
	for _, b := range c.all {
		if b.State().Takes() {
			n++
		}
	}
	return n
}

func (c *crew) eject(b *Breaker, k Kind, now time.Time) {
	if c.cfg.MayEject(k, len(c.all)-c.taking(), len(c.all)) {
		b.Fail(k, now)
	}
}

// usable are the workers that a request could be sent to.
func (c *crew) usable() (n int) {
	panics := c.cfg.Panics(c.taking(), len(c.all))
	for _, b := range c.all {
		if b.State().Takes() || panics && b.Relents() {
			n++
		}
	}
	return n
}

// well plays a second in which everything about a worker is well.
func (c *crew) well(b *Breaker, now time.Time) {
	b.ProbeOK(now)
	b.Warmed(now)
	if b.State().Takes() {
		b.Began(now)
		b.Progress(now)
		b.OK(now)
		b.Ended()
	}
	b.Share(now)
}

// TestNeverAllEjected plays any errors, stalls and outliers against workers that answer probes.
func TestNeverAllEjected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCrew(rapid.IntRange(1, 8).Draw(t, "workers"), Config{Panic: rapid.Float64Range(0.01, 1).Draw(t, "panic"), MaxEjected: rapid.Float64Range(0.1, 1).Draw(t, "ejected")})
		now := t0
		for _, b := range c.all {
			b.ProbeOK(now)
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			b := rapid.SampledFrom(c.all).Draw(t, "worker")
			switch k := rapid.SampledFrom([]Kind{Soft, Soft, Soft, Erring, Slow, Stalled, Refused, Refused, Broken, OOM, numKinds}).Draw(t, "kind"); k {
			case numKinds:
				c.well(b, now)
			default:
				c.eject(b, k, now)
			}
			if out := len(c.all) - c.taking(); out > 1 && float64(out) > c.cfg.MaxEjected*float64(len(c.all)) {
				t.Fatalf("requests have taken %d of %d out, at most %v may be", out, len(c.all), c.cfg.MaxEjected)
			}
			if c.usable() == 0 {
				t.Fatalf("nobody of %d can be used", len(c.all))
			}
		}
	})
}

// TestAlwaysRecovers plays anything at all, and then a world that is well again.
func TestAlwaysRecovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{WarmUp: rapid.Bool().Draw(t, "warm")}
		c := newCrew(rapid.IntRange(1, 5).Draw(t, "workers"), cfg)
		now := t0
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(-100, 5000).Draw(t, "ms")) * time.Millisecond)
			b := rapid.SampledFrom(c.all).Draw(t, "worker")
			switch op := rapid.IntRange(0, int(numKinds)+5).Draw(t, "op"); op - int(numKinds) {
			case 0:
				c.well(b, now)
			case 1:
				b.ProbeOK(now)
			case 2:
				b.Exported([]Card{{XID: rapid.Int64Range(0, 150).Draw(t, "xid"), RemapFailed: rapid.Bool().Draw(t, "remap"), Used: 100, Free: 100}}, now)
			case 3:
				b.Took(rapid.Float64().Draw(t, "slowness"), now)
			case 4:
				b.Warmed(now)
			case 5:
				b.Configure(cfg)
			default:
				b.Fail(Kind(op), now)
			}
		}
		// The longest backoff with its jitter, a trial, a ramp, and the clock that had run ahead.
		for range 75 + 1 + 10 + 20 {
			now = now.Add(time.Second)
			for _, b := range c.all {
				c.well(b, now)
			}
		}
		for i, b := range c.all {
			if b.State() != Closed || b.Share(now) != 1 {
				t.Fatalf("worker %d is %s because of %s with a share of %v", i, b.State(), b.Reason(), b.Share(now))
			}
		}
	})
}

// crewOf five, all closed, with so many answers each.
func busyCrew(now time.Time) *crew {
	c := newCrew(5, Config{})
	for _, b := range c.all {
		b.ProbeOK(now)
		for range 50 {
			b.OK(now)
			b.Took(1, now)
		}
	}
	return c
}

func TestOutliersByErrorRateAndLatency(t *testing.T) {
	c := busyCrew(t0)
	if at, _ := c.cfg.Outlier(c.all, t0); at >= 0 {
		t.Fatalf("worker %d of a calm pool is an outlier", at)
	}
	for range 40 {
		c.all[3].Fail(Soft, t0)
		c.all[3].OK(t0)
	}
	if at, k := c.cfg.Outlier(c.all, t0); at != 3 || k != Erring {
		t.Errorf("outlier is %d by %s, want 3 by its errors", at, k)
	}
	c = busyCrew(t0)
	for range 200 {
		c.all[2].Took(8, t0)
	}
	if at, k := c.cfg.Outlier(c.all, t0); at != 2 || k != Slow {
		t.Errorf("outlier is %d by %s, want 2 by its latency", at, k)
	}
	if at, _ := c.cfg.Outlier(c.all[1:3], t0); at >= 0 {
		t.Error("one of two is called an outlier")
	}
	if at, _ := c.cfg.Outlier(c.all, t0.Add(5*time.Minute)); at >= 0 {
		t.Error("what was five minutes ago still counts")
	}
	// When all of them fail alike it is not the workers' fault.
	c = busyCrew(t0)
	for _, b := range c.all {
		for range 40 {
			b.Fail(Soft, t0)
			b.OK(t0)
		}
	}
	if at, _ := c.cfg.Outlier(c.all, t0); at >= 0 {
		t.Errorf("worker %d of a pool that fails alike is an outlier", at)
	}
}

func TestAWorkerThatEmitsIsNotEjectedByProbes(t *testing.T) {
	b := wellBreaker(t)
	now := t0
	b.Began(now)
	for range 30 {
		b.Progress(now)
		b.Fail(Probe, now)
		now = now.Add(time.Second)
	}
	if b.State() != Closed {
		t.Fatalf("a worker that emits all along is %s because of its health page", b.State())
	}
	b.Fail(Probe, now.Add(5*time.Second))
	if b.State() != Open {
		t.Fatalf("five seconds after its last token it is %s", b.State())
	}
}

func TestWarmUpComesBeforeTheFirstTraffic(t *testing.T) {
	b := New(Config{WarmUp: true}, rand.New(rand.NewPCG(1, 2)))
	b.ProbeOK(t0)
	if b.State() != Warming {
		t.Fatalf("after its first probe it is %s", b.State())
	}
	b.Fail(WarmUp, t0)
	if b.State() != Open {
		t.Fatalf("after a failed warm-up it is %s", b.State())
	}
	now := t0.Add(2 * time.Second)
	b.ProbeOK(now)
	b.Warmed(now)
	if b.State() != Closed || b.Share(now) != 0.1 {
		t.Fatalf("after its warm-up it is %s with a share of %v", b.State(), b.Share(now))
	}
	b.Fail(OOM, now)
	now = now.Add(40 * time.Second)
	b.ProbeOK(now)
	b.Warmed(now)
	if b.State() != HalfOpen {
		t.Fatalf("after running out of memory and warming up it is %s, it owes a trial", b.State())
	}
}

func TestExporterReadings(t *testing.T) {
	b := wellBreaker(t)
	say := func(c Card) State { b.Exported([]Card{c}, t0); return b.State() }
	for _, c := range []Card{{XID: 79}, {XID: 79}, {XID: 13}, {XID: 0}} { // what was there at first is old; 13 is a program's own
		if say(c) != Closed {
			t.Fatalf("%+v opened it", c)
		}
	}
	if say(Card{XID: 79}) != Open || b.Reason() != GPU {
		t.Fatalf("a new XID 79: %s because of %s", b.State(), b.Reason())
	}
	b = wellBreaker(t)
	say(Card{})
	if say(Card{RemapFailed: true}) != Open || b.Until().Sub(t0) < 30*time.Second {
		t.Fatal("a failed row remap did not quarantine")
	}
	b = wellBreaker(t)
	say(Card{Used: 79_000, Free: 1000})
	if b.Tight() || b.Share(t0.Add(time.Minute)) != 1 {
		t.Fatal("an engine that took 99 % of its GPU's memory is called short of it")
	}
	if say(Card{Used: 79_900, Free: 100}); !b.Tight() || b.Share(t0.Add(time.Minute)) != 0.5 {
		t.Fatal("memory pressure did not halve the share")
	}
	if say(Card{Used: 79_000, Free: 1000}); b.Share(t0.Add(time.Minute)) != 1 {
		t.Fatal("the share stayed halved")
	}
}

func TestDrainHasADeadline(t *testing.T) {
	var d Drain
	if d.Overdue(time.Second, t0) {
		t.Fatal("what is not drained is overdue")
	}
	d.Set(true, t0)
	d.Set(true, t0.Add(time.Minute))
	if d.Overdue(time.Minute, t0.Add(59*time.Second)) || !d.Overdue(time.Minute, t0.Add(time.Minute)) || d.Overdue(0, t0.Add(time.Hour)) {
		t.Fatal("the deadline is not a minute after the drain began")
	}
	if d.Set(false, t0); d.On() || d.Overdue(time.Second, t0.Add(time.Hour)) {
		t.Fatal("undrained, and still overdue")
	}
}
