package health

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var testStart = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newTestBreaker() *Breaker { return New(Config{}, rand.New(rand.NewPCG(1, 2))) }

func newClosedBreaker(t *testing.T) *Breaker {
	t.Helper()
	b := newTestBreaker()
	b.RecordProbeSuccess(testStart)
	if b.State() != Closed {
		t.Fatalf("a new worker is %s after its first good probe", b.State())
	}
	return b
}

func TestNewWorkerTakesNothingUntilProbedThenStartsSlowly(t *testing.T) {
	b := newTestBreaker()
	if b.State() != Open {
		t.Fatalf("a new worker is %s", b.State())
	}
	b.RecordProbeSuccess(testStart)
	for _, c := range []struct {
		after time.Duration
		want  float64
	}{{0, 0.1}, {5 * time.Second, 0.5}, {10 * time.Second, 1}, {time.Hour, 1}} {
		if got := b.Share(testStart.Add(c.after)); got != c.want {
			t.Errorf("share after %v is %v, want %v", c.after, got, c.want)
		}
	}
}

func TestFailuresThatOpen(t *testing.T) {
	for _, c := range []struct {
		kind  FailureKind
		times int
	}{{SoftError, 1}, {ConnectionRefused, 2}, {ProbeFailed, 2}, {OutputStalled, 1}, {HardwareBroken, 1}, {OutOfMemory, 1}, {GPUFault, 1}, {ErrorRateOutlier, 1}, {LatencyOutlier, 1}} {
		b := newClosedBreaker(t)
		for i := 1; i <= c.times; i++ {
			if b.State() != Closed {
				t.Errorf("%s: open after %d, want %d", c.kind, i-1, c.times)
			}
			b.RecordFailure(c.kind, testStart)
		}
		if b.State() != Open || b.Reason() != c.kind {
			t.Errorf("%s: %s because of %s after %d", c.kind, b.State(), b.Reason(), c.times)
		}
	}
}

func TestSuccessResetsSoftFailures(t *testing.T) {
	b := newClosedBreaker(t)
	for range 20 {
		b.FailAnswer("ann", testStart)
		b.FailAnswer("bob", testStart)
		b.RecordSuccess(testStart)
	}
	if b.State() != Closed {
		t.Fatalf("the breaker is %s", b.State())
	}
}

func TestUnhealthyWorkerReturnsThroughTrial(t *testing.T) {
	b := newClosedBreaker(t)
	b.RecordFailure(OutputStalled, testStart)
	b.RecordProbeSuccess(testStart.Add(500 * time.Millisecond))
	if b.State() != Open {
		t.Fatal("a health page brought it back before its backoff had passed")
	}
	now := testStart.Add(2 * time.Second)
	b.RecordProbeSuccess(now)
	if b.State() != HalfOpen || b.MaxTrials() != 1 {
		t.Fatalf("after the backoff it is %s with %d trials", b.State(), b.MaxTrials())
	}
	b.RecordSuccess(now)
	if b.State() != Closed || b.Share(now) != 0.1 {
		t.Fatalf("after its trial it is %s with a share of %v", b.State(), b.Share(now))
	}
}

func TestBackoffGrowsAndResetsAfterRecovery(t *testing.T) {
	b := newClosedBreaker(t)
	now := testStart
	var last time.Duration
	for range 5 {
		b.RecordFailure(OutputStalled, now)
		wait := b.openUntil.Sub(now)
		if wait <= last {
			t.Fatalf("backoff %v follows %v", wait, last)
		}
		last = wait
		now = b.openUntil
		b.RecordProbeSuccess(now)
	}
	b.RecordSuccess(now)
	now = now.Add(time.Minute)
	b.Share(now)
	b.RecordFailure(OutputStalled, now)
	if wait := b.openUntil.Sub(now); wait > 2*time.Second {
		t.Fatalf("after a full recovery the backoff is %v", wait)
	}
}

func TestBrokenHardwareIsQuarantined(t *testing.T) {
	b := newClosedBreaker(t)
	b.RecordFailure(ConnectionRefused, testStart)
	b.RecordFailure(ConnectionRefused, testStart)
	b.RecordFailure(HardwareBroken, testStart)
	b.RecordProbeSuccess(testStart.Add(29 * time.Second))
	if b.State() != Open || b.Reason() != HardwareBroken {
		t.Fatalf("29 s after a CUDA error it is %s because of %s", b.State(), b.Reason())
	}
}

func TestStalledWorkerOpens(t *testing.T) {
	b := newClosedBreaker(t)
	if b.IsStalled(0, testStart.Add(time.Hour)) {
		t.Fatal("an idle worker is called stalled")
	}
	b.BeginRequest(testStart)
	if b.IsStalled(0, testStart.Add(9*time.Second)) || !b.IsStalled(0, testStart.Add(11*time.Second)) {
		t.Fatal("the limit is not 10 s")
	}
	if b.IsStalled(30*time.Second, testStart.Add(35*time.Second)) {
		t.Fatal("a long prompt that was expected to take 30 s is called a stall after 35 s")
	}
	b.RecordOutput(testStart.Add(8 * time.Second))
	if b.IsStalled(0, testStart.Add(15*time.Second)) {
		t.Fatal("progress did not count")
	}
	b.EndRequest()
	if b.IsStalled(0, testStart.Add(time.Hour)) {
		t.Fatal("a worker whose requests ended is called stalled")
	}
}

func TestFailedProbeShortensSilenceLimit(t *testing.T) {
	b := newClosedBreaker(t)
	b.BeginRequest(testStart)
	b.RecordFailure(ProbeFailed, testStart.Add(time.Second))
	if b.IsStalled(0, testStart.Add(2*time.Second)) || !b.IsStalled(0, testStart.Add(3*time.Second)) {
		t.Fatal("the limit is not a quarter of 10 s")
	}
	if b.IsStalled(5*time.Second, testStart.Add(7*time.Second)) {
		t.Fatal("what was expected to take 5 s is called a stall after 7 s")
	}
	b.RecordProbeSuccess(testStart.Add(3 * time.Second))
	if b.IsStalled(0, testStart.Add(9*time.Second)) {
		t.Fatal("a probe that succeeded again did not restore the patience")
	}
}

func TestDeadWorkerIsOpenAndSilent(t *testing.T) {
	for kind, want := range map[FailureKind]bool{ProbeFailed: true, OutputStalled: true, HardwareBroken: true, OutOfMemory: true, GPUFault: true, SoftError: false, ConnectionRefused: false, LatencyOutlier: false, ErrorRateOutlier: false} {
		b := newClosedBreaker(t)
		b.BeginRequest(testStart)
		for range 5 {
			b.RecordFailure(kind, testStart)
		}
		if b.IsDead(testStart.Add(time.Second)) {
			t.Errorf("%s: dead after a second of silence", kind)
		}
		if got := b.IsDead(testStart.Add(3 * time.Second)); got != want {
			t.Errorf("%s: dead is %v after 3 s of silence, want %v", kind, got, want)
		}
		b.RecordOutput(testStart.Add(2500 * time.Millisecond))
		if b.IsDead(testStart.Add(3 * time.Second)) {
			t.Errorf("%s: a worker that emits is called dead", kind)
		}
		b.EndRequest()
		if b.IsDead(testStart.Add(time.Hour)) {
			t.Errorf("%s: a worker that holds nothing is called dead", kind)
		}
	}
	b := newClosedBreaker(t)
	b.BeginRequest(testStart)
	if b.IsDead(testStart.Add(time.Hour)) {
		t.Error("a worker that is not out is called dead")
	}
}

func TestClassifyAnswer(t *testing.T) {
	const request = `{"model":"m","messages":[{"role":"user","content":"tell me a story"}]}`
	for _, c := range []struct {
		status        int
		body, request string
		kind          FailureKind
		ok            bool
	}{
		{400, `{"error":"CUDA error"}`, request, 0, false},
		{429, ``, request, 0, false},
		{500, `{"message":"CUDA error: an illegal memory access was encountered"}`, request, HardwareBroken, true},
		{500, `{"error":{"message":"CUDA error: device lost","type":"InternalServerError","code":500}}`, request, HardwareBroken, true},
		{500, `{"error":{"message":"failed","type":"OutOfMemoryError"}}`, request, OutOfMemory, true},
		{500, `{"detail":"NCCL error: unhandled"}`, request, HardwareBroken, true},
		{500, `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate`, request, OutOfMemory, true},
		{503, `EngineDeadError: EngineCore encountered an issue`, request, HardwareBroken, true},
		{500, `internal`, request, SoftError, true},
		{503, `overloaded`, request, 0, false},
		// What the engine quotes of the request is no evidence.
		{500, `{"error":{"message":"cannot parse: CUDA error"}}`, `{"prompt":"CUDA error"}`, SoftError, true},
		{500, `{"error":{"message":"cannot parse: CUDA error"}}`, `{"prompt":"\u0043UDA\terror"}`, SoftError, true},
		{500, `{"error":{"message":"cannot parse: CUDA error"}}`, `{"content":[{"text":"CUDA "},{"text":"error"}]}`, SoftError, true},
		{500, `{"error":{"message":"cannot parse: CUDA error"}}`, `{"prompt":[[791, 3446]]}`, SoftError, true},
		{500, `{"error":{"message":"cannot parse: CUDA error"}}`, ``, SoftError, true},
		{500, `cannot parse: hip error`, `{"prompt":"HIP error"}`, SoftError, true},
		{503, `{"error":{"message":"EngineDeadError"}}`, `{"prompt":"enginedeaderror"}`, 0, false},
		{500, `{"error":{"message":"CUDA error"},"prompt":"x"}`, `{"prompt":"a hip error"}`, HardwareBroken, true},
		// Only the engine's own fields count.
		{500, `{"error":{"message":"failed"},"input":"CUDA error"}`, request, SoftError, true},
		{500, `{"detail":[{"msg":"bad","input":"CUDA error"}]}`, request, SoftError, true},
		{500, `{"error":{"message":"failed","input":"CUDA error"}}`, request, SoftError, true},
	} {
		if k, ok := ClassifyAnswer(c.status, []byte(c.body), []byte(c.request)); k != c.kind || ok != c.ok {
			t.Errorf("%d %q to %q: %s %v, want %s %v", c.status, c.body, c.request, k, ok, c.kind, c.ok)
		}
	}
}

// FuzzClassifyAnswer classifies any answer to any request. A body that only quotes the whole request never counts as
// a broken worker.
func FuzzClassifyAnswer(f *testing.F) {
	f.Add(500, []byte(`{"error":{"message":"CUDA error"}}`), []byte(`{"prompt":"\\u0043UDA error"}`))
	f.Add(503, []byte("engine core"), []byte(`[`))
	f.Fuzz(func(t *testing.T, status int, body, request []byte) {
		ClassifyAnswer(status, body, request)
		if k, ok := ClassifyAnswer(500, request, request); ok && k != SoftError {
			t.Errorf("the request itself, quoted, is read as %s", k)
		}
	})
}

// applyRandomEvent applies one event: -5 a verification with any outcome, -4 a plain error answer, -3 a passed
// warm-up, -2 a served request, -1 an answered probe, others a kind of failure.
func applyRandomEvent(t *rapid.T, b *Breaker, now time.Time) (op int) {
	op = rapid.IntRange(-5, int(numFailureKinds)-1).Draw(t, "op")
	switch op {
	case -5:
		if k, due := b.Verify(now); due && b.Verified(now, Verification(rapid.IntRange(0, 2).Draw(t, "verification")), now) {
			b.RecordFailure(k, now)
		}
	case -4:
		b.FailAnswer(rapid.SampledFrom([]string{"", "ann", "bob"}).Draw(t, "tenant"), now)
	case -3:
		b.RecordWarmUp(now)
	case -2:
		b.RecordSuccess(now)
	case -1:
		b.RecordProbeSuccess(now)
	default:
		b.RecordFailure(FailureKind(op), now)
	}
	return op
}

// TestOpenWorkerTakesNoRequests applies random events: an open worker never takes requests before its backoff and a
// probe.
func TestOpenWorkerTakesNoRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(Config{WarmUp: rapid.Bool().Draw(t, "warm")}, rand.New(rand.NewPCG(1, 2)))
		now := testStart
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(-500, 3000).Draw(t, "ms")) * time.Millisecond)
			before, until := b.State(), b.OpenUntil()
			op := applyRandomEvent(t, b, now)
			if before == Open && b.State() != Open && (op != -1 || now.Before(until)) {
				t.Fatalf("left open by operation %d, %v before its time", op, until.Sub(now))
			}
			if !before.AcceptsRequests() && b.State().AcceptsRequests() && b.cfg.WarmUp && op != -3 {
				t.Fatalf("takes requests after operation %d without a warm-up", op)
			}
			if s := b.Share(now); s < 0.1 || s > 1 {
				t.Fatalf("share is %v", s)
			}
			if d := b.OpenUntil().Sub(now); b.State() == Open && before != Open && d > 75*time.Second {
				t.Fatalf("open for %v", d)
			}
		}
	})
}

// TestMayBeStalledEqualsStalledWithNothingExpected: it equals IsStalled with an expected time of 0, so it is never
// false where IsStalled is true.
func TestMayBeStalledEqualsStalledWithNothingExpected(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now := New(Config{}, rand.New(rand.NewPCG(1, 2))), time.Unix(1000, 0)
		t.Repeat(map[string]func(*rapid.T){
			"began":    func(*rapid.T) { b.BeginRequest(now) },
			"ended":    func(*rapid.T) { b.EndRequest() },
			"progress": func(*rapid.T) { b.RecordOutput(now) },
			"probe":    func(*rapid.T) { b.RecordFailure(ProbeFailed, now) },
			"later": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			},
			"": func(t *rapid.T) {
				if may, does := b.MayBeStalled(now), b.IsStalled(0, now); may != does {
					t.Fatalf("may stall %v, stalled %v", may, does)
				}
				if b.IsStalled(time.Second, now) && !b.MayBeStalled(now) {
					t.Fatal("stalled, and it may not")
				}
			},
		})
	})
}

// TestHealthPagesCanMisleadBothWays: an engine under a long prefill fails its health page for 20 s while it
// emits tokens, and one with a dead scheduler passes it forever. The first stays in use, the second is detected.
func TestHealthPagesCanMisleadBothWays(t *testing.T) {
	start := time.Unix(1e6, 0)
	fresh := func() *Breaker {
		b := New(Config{SlowStart: time.Nanosecond}, rand.New(rand.NewPCG(1, 1)))
		b.RecordProbeSuccess(start)
		return b
	}
	busy := fresh()
	busy.BeginRequest(start)
	for s := range 20 {
		now := start.Add(time.Duration(s) * time.Second)
		busy.RecordOutput(now)
		busy.RecordFailure(ProbeFailed, now.Add(500*time.Millisecond))
		if busy.State() != Closed {
			t.Fatalf("after %d s of failed probes a worker that emits tokens was taken out: %v", s, busy.Reason())
		}
	}
	dead := fresh()
	dead.BeginRequest(start)
	dead.RecordOutput(start.Add(time.Second)) // it emitted once
	found := time.Duration(0)
	for at := 2 * time.Second; at < time.Minute && found == 0; at += 250 * time.Millisecond {
		now := start.Add(at)
		dead.RecordProbeSuccess(now)
		if dead.IsStalled(200*time.Millisecond, now) {
			dead.RecordFailure(OutputStalled, now)
			found = at
		}
	}
	if found == 0 || found > 12*time.Second || dead.State() != Open {
		t.Fatalf("a dead scheduler behind a healthy page was found after %v, want within 12 s", found)
	}
	// The health page alone does not readmit it: it needs a trial, and a failed trial doubles the backoff.
	now := start.Add(found + 2*time.Second)
	dead.RecordProbeSuccess(now)
	if dead.State() != HalfOpen || dead.MaxTrials() != 1 {
		t.Fatalf("it is back as %v with %d trials", dead.State(), dead.MaxTrials())
	}
	dead.RecordFailure(OutputStalled, now)
	if wait := dead.OpenUntil().Sub(now); wait < 2*time.Second {
		t.Errorf("after a second failure it is out for %v only", wait)
	}
	// A single failed probe does not open: engines are slow to answer while they compile.
	slow := fresh()
	slow.RecordFailure(ProbeFailed, start)
	slow.RecordProbeSuccess(start.Add(time.Second))
	slow.RecordFailure(ProbeFailed, start.Add(2*time.Second))
	if slow.State() != Closed {
		t.Error("a single failed probe took a worker out")
	}
}

// TestAbsenceDoesNotClearRequiredTrial: a worker that was ejected and then also failed its warm-up, probes or trial
// by being absent still needs the trial.
func TestAbsenceDoesNotClearRequiredTrial(t *testing.T) {
	back := func(b *Breaker) {
		now := b.OpenUntil()
		b.RecordProbeSuccess(now)
		b.RecordWarmUp(now)
	}
	for _, c := range []struct {
		name    string
		warmUp  bool
		between func(b *Breaker)
	}{
		{"a failed warm-up", true, func(b *Breaker) {
			b.RecordProbeSuccess(b.OpenUntil())
			b.RecordFailure(WarmUpFailed, b.OpenUntil())
		}},
		{"two failed warm-ups", true, func(b *Breaker) {
			for range 2 {
				b.RecordProbeSuccess(b.OpenUntil())
				b.RecordFailure(WarmUpFailed, b.OpenUntil())
			}
		}},
		{"a failed probe on trial", false, func(b *Breaker) {
			back(b)
			b.RecordFailure(ProbeFailed, b.OpenUntil())
		}},
		{"a refused connection on trial", true, func(b *Breaker) {
			back(b)
			b.RecordFailure(ConnectionRefused, b.OpenUntil())
		}},
	} {
		for _, why := range []FailureKind{OutOfMemory, OutputStalled, ErrorRateOutlier, LatencyOutlier, SoftError, DeepProbeFailed} {
			b := New(Config{WarmUp: c.warmUp, Failures: 1}, rand.New(rand.NewPCG(1, 2)))
			back(b)
			b.RecordFailure(why, testStart)
			c.between(b)
			if b.State() != Open || !b.Reason().isAbsence() {
				t.Fatalf("%s after %s: it is %s because of %s, the case is about an absence", c.name, why, b.State(), b.Reason())
			}
			back(b)
			if b.State() != HalfOpen {
				t.Errorf("%s after %s: it came back %s, it needs a trial", c.name, why, b.State())
				continue
			}
			b.RecordSuccess(b.OpenUntil())
			if b.State() != Closed {
				t.Errorf("%s after %s: it is %s after its trial", c.name, why, b.State())
			}
			b.RecordFailure(ConnectionRefused, b.OpenUntil())
			b.RecordFailure(ConnectionRefused, b.OpenUntil())
			back(b)
			if b.State() != Closed {
				t.Errorf("%s after %s: paid, and %s after an absence", c.name, why, b.State())
			}
		}
	}
}

// TestTrialIsRequiredUntilPassed: after any events, a worker that was out for more than absence is never closed again
// without a success on trial.
func TestTrialIsRequiredUntilPassed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(Config{WarmUp: rapid.Bool().Draw(t, "warm")}, rand.New(rand.NewPCG(1, 2)))
		now, accused := testStart, false
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			before, op := b.State(), applyRandomEvent(t, b, now)
			accused = accused || b.State() == Open && !b.Reason().isAbsence()
			if b.State() != Closed {
				continue
			}
			if accused && (before != HalfOpen || op != -2 && op != -5) {
				t.Fatalf("operation %d closed it out of %s: it needed a trial", op, before)
			}
			accused = false
		}
	})
}

// TestDeepProbeIsDueOncePerSilentInterval: a silent worker is probed once per interval, one that emits tokens is not.
func TestDeepProbeIsDueOncePerSilentInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		every := time.Duration(rapid.IntRange(int(time.Second), int(time.Hour)).Draw(t, "every"))
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var d DeepProbeTimer
		now, last := testStart, testStart
		for range rapid.IntRange(1, 200).Draw(t, "looks") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(every)/4).Draw(t, "step")))
			if rapid.IntRange(0, 9).Draw(t, "speaks") == 0 {
				d.RecordToken(now)
				last = now
				continue
			}
			silent, due := now.Sub(last), d.TakeDueProbe(every, now, rng)
			if due && silent < every/10 || !due && silent > every*11/10 {
				t.Fatalf("after %v of silence, asked every %v: %v", silent, every, due)
			}
			if due {
				last = now
			}
		}
		if d.TakeDueProbe(0, now.Add(100*every), rng) {
			t.Fatal("asked although it is off")
		}
	})
}

func TestFailedDeepProbeOpensAndRequiresTrial(t *testing.T) {
	b := newClosedBreaker(t)
	b.RecordFailure(DeepProbeFailed, testStart)
	if b.State() != Open || b.Reason() != DeepProbeFailed || b.Reason().String() != "deep_probe" {
		t.Fatalf("it is %s because of %s", b.State(), b.Reason())
	}
	if !b.UsableInPanic() {
		t.Fatal("it would not be used in a panic")
	}
	b.RecordProbeSuccess(b.OpenUntil())
	if b.State() != HalfOpen {
		t.Fatalf("a health page alone brought it back as %s", b.State())
	}
}
