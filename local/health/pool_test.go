package health

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDoubtsEjectAtMostHalfAndNeverTheLast(t *testing.T) {
	if (Config{MaxEjected: 1}).MayEject(SoftError, 3, 4) {
		t.Error("the last worker of four may go")
	}
	for _, c := range []struct {
		kind       FailureKind
		out, total int
		want       bool
	}{
		{SoftError, 0, 1, false},
		{SoftError, 0, 2, true},
		{SoftError, 1, 2, false},
		{LatencyOutlier, 1, 4, true},
		{ErrorRateOutlier, 2, 4, false},
		{ConnectionRefused, 1, 4, true},
		{ConnectionRefused, 2, 4, false},
		{HardwareBroken, 0, 1, true},
		{ConnectionRefused, 1, 2, false},
		{ConnectionRefused, 0, 3, true},
		{HardwareBroken, 2, 4, false},
		{OutOfMemory, 2, 4, false},
		{OutputStalled, 2, 4, false},
		{ProbeFailed, 3, 4, true},
		{GPUFault, 0, 1, true},
		{DeepProbeFailed, 3, 4, true},
	} {
		if got := (Config{}).MayEject(c.kind, c.out, c.total); got != c.want {
			t.Errorf("%s with %d of %d out: %v, want %v", c.kind, c.out, c.total, got, c.want)
		}
	}
}

// testPool is a pool as local keeps it.
type testPool struct {
	cfg      Config
	breakers []*Breaker
}

func newTestPool(n int, cfg Config) *testPool {
	c := &testPool{cfg: cfg}
	for i := range n {
		c.breakers = append(c.breakers, New(cfg, rand.New(rand.NewPCG(uint64(i), 3))))
	}
	return c
}

func (c *testPool) countAccepting() (n int) {
	for _, b := range c.breakers {
		if b.State().AcceptsRequests() {
			n++
		}
	}
	return n
}

func (c *testPool) ejectIfAllowed(b *Breaker, k FailureKind, now time.Time) {
	if c.cfg.MayEject(k, len(c.breakers)-c.countAccepting(), len(c.breakers)) {
		b.RecordFailure(k, now)
	}
}

// countUsable counts the workers that a request could be sent to.
func (c *testPool) countUsable() (n int) {
	panics := c.cfg.IsPanicking(c.countAccepting(), len(c.breakers))
	for _, b := range c.breakers {
		if b.State().AcceptsRequests() || panics && b.UsableInPanic() {
			n++
		}
	}
	return n
}

// playHealthySecond simulates a second in which a worker behaves well in every respect.
func (c *testPool) playHealthySecond(b *Breaker, now time.Time) {
	b.RecordProbeSuccess(now)
	b.RecordWarmUp(now)
	if b.State().AcceptsRequests() {
		b.BeginRequest(now)
		b.RecordOutput(now)
		b.RecordSuccess(now)
		b.EndRequest()
	}
	b.Share(now)
}

// TestNeverAllEjected applies any errors, stalls and outliers to workers that answer probes.
func TestNeverAllEjected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newTestPool(rapid.IntRange(1, 8).Draw(t, "workers"), Config{Panic: rapid.Float64Range(0.01, 1).Draw(t, "panic"), MaxEjected: rapid.Float64Range(0.1, 1).Draw(t, "ejected")})
		now := testStart
		for _, b := range c.breakers {
			b.RecordProbeSuccess(now)
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond)
			b := rapid.SampledFrom(c.breakers).Draw(t, "worker")
			switch k := rapid.SampledFrom([]FailureKind{SoftError, SoftError, SoftError, ErrorRateOutlier, LatencyOutlier, OutputStalled, ConnectionRefused, ConnectionRefused, HardwareBroken, OutOfMemory, numFailureKinds}).Draw(t, "kind"); k {
			case numFailureKinds:
				c.playHealthySecond(b, now)
			default:
				c.ejectIfAllowed(b, k, now)
			}
			if out := len(c.breakers) - c.countAccepting(); out > 1 && float64(out) > c.cfg.MaxEjected*float64(len(c.breakers)) {
				t.Fatalf("requests have taken %d of %d out, at most %v may be", out, len(c.breakers), c.cfg.MaxEjected)
			}
			if c.countUsable() == 0 {
				t.Fatalf("none of %d workers can be used", len(c.breakers))
			}
		}
	})
}

// TestAlwaysRecovers applies any events, and then a time in which every worker behaves well.
func TestAlwaysRecovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Config{WarmUp: rapid.Bool().Draw(t, "warm")}
		c := newTestPool(rapid.IntRange(1, 5).Draw(t, "workers"), cfg)
		now := testStart
		for range rapid.IntRange(0, 150).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(-100, 5000).Draw(t, "ms")) * time.Millisecond)
			b := rapid.SampledFrom(c.breakers).Draw(t, "worker")
			switch op := rapid.IntRange(0, int(numFailureKinds)+5).Draw(t, "op"); op - int(numFailureKinds) {
			case 0:
				c.playHealthySecond(b, now)
			case 1:
				b.RecordProbeSuccess(now)
			case 2:
				b.RecordGPUHealth([]GPUHealth{{XID: rapid.Int64Range(0, 150).Draw(t, "xid"), RemapFailed: rapid.Bool().Draw(t, "remap"), Used: 100, Free: 100}}, now)
			case 3:
				b.RecordSlowness(rapid.Float64().Draw(t, "slowness"), now)
			case 4:
				b.RecordWarmUp(now)
			case 5:
				b.SetConfig(cfg)
			default:
				b.RecordFailure(FailureKind(op), now)
			}
		}
		// The longest backoff with its jitter, a trial, a ramp, and the time that the clock was ahead.
		for range 75 + 1 + 10 + 20 {
			now = now.Add(time.Second)
			for _, b := range c.breakers {
				c.playHealthySecond(b, now)
			}
		}
		for i, b := range c.breakers {
			if b.State() != Closed || b.Share(now) != 1 {
				t.Fatalf("worker %d is %s because of %s with a share of %v", i, b.State(), b.Reason(), b.Share(now))
			}
		}
	})
}

// newBusyPool returns a pool of five closed workers with the same number of answers each.
func newBusyPool(now time.Time) *testPool {
	c := newTestPool(5, Config{})
	for _, b := range c.breakers {
		b.RecordProbeSuccess(now)
		for range 50 {
			b.RecordSuccess(now)
			b.RecordSlowness(1, now)
		}
	}
	return c
}

func TestOutliersByErrorRateAndLatency(t *testing.T) {
	c := newBusyPool(testStart)
	if at, _ := c.cfg.FindOutlier(c.breakers, testStart); at >= 0 {
		t.Fatalf("worker %d of a uniform pool is an outlier", at)
	}
	for range 40 {
		c.breakers[3].FailAnswer("ann", testStart)
		c.breakers[3].FailAnswer("bob", testStart)
		c.breakers[3].RecordSuccess(testStart)
		c.breakers[3].RecordSuccess(testStart)
	}
	if at, k := c.cfg.FindOutlier(c.breakers, testStart); at != 3 || k != ErrorRateOutlier {
		t.Errorf("outlier is %d by %s, want 3 by its errors", at, k)
	}
	c = newBusyPool(testStart)
	for range 200 {
		c.breakers[2].RecordSlowness(8, testStart)
	}
	if at, k := c.cfg.FindOutlier(c.breakers, testStart); at != 2 || k != LatencyOutlier {
		t.Errorf("outlier is %d by %s, want 2 by its latency", at, k)
	}
	if at, _ := c.cfg.FindOutlier(c.breakers[1:3], testStart); at >= 0 {
		t.Error("one of two is called an outlier")
	}
	if at, _ := c.cfg.FindOutlier(c.breakers, testStart.Add(5*time.Minute)); at >= 0 {
		t.Error("what was five minutes ago still counts")
	}
	// When all of them fail alike, the cause is not a worker.
	c = newBusyPool(testStart)
	for _, b := range c.breakers {
		for range 40 {
			b.FailAnswer("ann", testStart)
			b.RecordSuccess(testStart)
			b.FailAnswer("bob", testStart)
			b.RecordSuccess(testStart)
		}
	}
	if at, _ := c.cfg.FindOutlier(c.breakers, testStart); at >= 0 {
		t.Errorf("worker %d of a pool that fails alike is an outlier", at)
	}
}

func TestFailedProbesDoNotEjectEmittingWorker(t *testing.T) {
	b := newClosedBreaker(t)
	now := testStart
	b.BeginRequest(now)
	for range 30 {
		b.RecordOutput(now)
		b.RecordFailure(ProbeFailed, now)
		now = now.Add(time.Second)
	}
	if b.State() != Closed {
		t.Fatalf("a worker that emits all along is %s because of its health page", b.State())
	}
	b.RecordFailure(ProbeFailed, now.Add(5*time.Second))
	if b.State() != Open {
		t.Fatalf("five seconds after its last token it is %s", b.State())
	}
}

func TestWarmUpComesBeforeTheFirstTraffic(t *testing.T) {
	b := New(Config{WarmUp: true}, rand.New(rand.NewPCG(1, 2)))
	b.RecordProbeSuccess(testStart)
	if b.State() != Warming {
		t.Fatalf("after its first probe it is %s", b.State())
	}
	b.RecordFailure(WarmUpFailed, testStart)
	if b.State() != Open {
		t.Fatalf("after a failed warm-up it is %s", b.State())
	}
	now := testStart.Add(2 * time.Second)
	b.RecordProbeSuccess(now)
	b.RecordWarmUp(now)
	if b.State() != Closed || b.Share(now) != 0.1 {
		t.Fatalf("after its warm-up it is %s with a share of %v", b.State(), b.Share(now))
	}
	b.RecordFailure(OutOfMemory, now)
	now = now.Add(40 * time.Second)
	b.RecordProbeSuccess(now)
	b.RecordWarmUp(now)
	if b.State() != HalfOpen {
		t.Fatalf("after running out of memory and warming up it is %s, it needs a trial", b.State())
	}
}

func TestGPUHealthReadings(t *testing.T) {
	b := newClosedBreaker(t)
	say := func(c GPUHealth) BreakerState { b.RecordGPUHealth([]GPUHealth{c}, testStart); return b.State() }
	for _, c := range []GPUHealth{{XID: 79}, {XID: 79}, {XID: 13}, {XID: 0}} { // the first reading is old; 13 is caused by programs
		if say(c) != Closed {
			t.Fatalf("%+v opened it", c)
		}
	}
	if say(GPUHealth{XID: 79}) != Open || b.Reason() != GPUFault {
		t.Fatalf("a new XID 79: %s because of %s", b.State(), b.Reason())
	}
	b = newClosedBreaker(t)
	say(GPUHealth{})
	if say(GPUHealth{RemapFailed: true}) != Open || b.OpenUntil().Sub(testStart) < 30*time.Second {
		t.Fatal("a failed row remap did not quarantine")
	}
	b = newClosedBreaker(t)
	say(GPUHealth{Used: 79_000, Free: 1000})
	if b.IsMemoryTight() || b.Share(testStart.Add(time.Minute)) != 1 {
		t.Fatal("an engine that took 99 % of its GPU's memory is called short of it")
	}
	if say(GPUHealth{Used: 79_900, Free: 100}); !b.IsMemoryTight() || b.Share(testStart.Add(time.Minute)) != 0.5 {
		t.Fatal("memory pressure did not halve the share")
	}
	if say(GPUHealth{Used: 79_000, Free: 1000}); b.Share(testStart.Add(time.Minute)) != 1 {
		t.Fatal("the share stayed halved")
	}
}

func TestDrainHasADeadline(t *testing.T) {
	var d DrainState
	if d.IsOverdue(time.Second, testStart) {
		t.Fatal("what is not drained is overdue")
	}
	d.SetDraining(true, testStart)
	d.SetDraining(true, testStart.Add(time.Minute))
	if d.IsOverdue(time.Minute, testStart.Add(59*time.Second)) || !d.IsOverdue(time.Minute, testStart.Add(time.Minute)) || d.IsOverdue(0, testStart.Add(time.Hour)) {
		t.Fatal("the deadline is not a minute after the drain began")
	}
	if d.SetDraining(false, testStart); d.IsDraining() || d.IsOverdue(time.Second, testStart.Add(time.Hour)) {
		t.Fatal("undrained, and still overdue")
	}
}
