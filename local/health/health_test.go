package health

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func newBreaker() *Breaker { return New(Config{}, rand.New(rand.NewPCG(1, 2))) }

func wellBreaker(t *testing.T) *Breaker {
	t.Helper()
	b := newBreaker()
	b.ProbeOK(t0)
	if b.State() != Closed {
		t.Fatalf("a new worker is %s after its first good probe", b.State())
	}
	return b
}

func TestNewWorkerTakesNothingUntilProbedThenStartsSlowly(t *testing.T) {
	b := newBreaker()
	if b.State() != Open {
		t.Fatalf("a worker nobody has heard of is %s", b.State())
	}
	b.ProbeOK(t0)
	for _, c := range []struct {
		after time.Duration
		want  float64
	}{{0, 0.1}, {5 * time.Second, 0.5}, {10 * time.Second, 1}, {time.Hour, 1}} {
		if got := b.Share(t0.Add(c.after)); got != c.want {
			t.Errorf("share after %v is %v, want %v", c.after, got, c.want)
		}
	}
}

func TestWhatOpens(t *testing.T) {
	for _, c := range []struct {
		kind  Kind
		times int
	}{{Soft, 5}, {Refused, 2}, {Probe, 2}, {Stalled, 1}, {Broken, 1}, {OOM, 1}, {GPU, 1}, {Erring, 1}, {Slow, 1}} {
		b := wellBreaker(t)
		for i := 1; i <= c.times; i++ {
			if b.State() != Closed {
				t.Errorf("%s: open after %d, want %d", c.kind, i-1, c.times)
			}
			b.Fail(c.kind, t0)
		}
		if b.State() != Open || b.Reason() != c.kind {
			t.Errorf("%s: %s because of %s after %d", c.kind, b.State(), b.Reason(), c.times)
		}
	}
}

func TestASuccessBetweenForgivesSoftFailures(t *testing.T) {
	b := wellBreaker(t)
	for range 20 {
		b.Fail(Soft, t0)
		b.Fail(Soft, t0)
		b.OK(t0)
	}
	if b.State() != Closed {
		t.Fatalf("the breaker is %s", b.State())
	}
}

func TestSickWorkerComesBackThroughATrial(t *testing.T) {
	b := wellBreaker(t)
	b.Fail(Stalled, t0)
	b.ProbeOK(t0.Add(500 * time.Millisecond))
	if b.State() != Open {
		t.Fatal("a health page brought it back before its backoff had passed")
	}
	now := t0.Add(2 * time.Second)
	b.ProbeOK(now)
	if b.State() != HalfOpen || b.Trials() != 1 {
		t.Fatalf("after the backoff it is %s with %d trials", b.State(), b.Trials())
	}
	b.OK(now)
	if b.State() != Closed || b.Share(now) != 0.1 {
		t.Fatalf("after its trial it is %s with a share of %v", b.State(), b.Share(now))
	}
}

func TestBackoffGrowsAndIsForgottenAfterARecovery(t *testing.T) {
	b := wellBreaker(t)
	now := t0
	var last time.Duration
	for range 5 {
		b.Fail(Stalled, now)
		wait := b.until.Sub(now)
		if wait <= last {
			t.Fatalf("backoff %v follows %v", wait, last)
		}
		last = wait
		now = b.until
		b.ProbeOK(now)
	}
	b.OK(now)
	now = now.Add(time.Minute)
	b.Share(now)
	b.Fail(Stalled, now)
	if wait := b.until.Sub(now); wait > 2*time.Second {
		t.Fatalf("after a full recovery the backoff is %v", wait)
	}
}

func TestBrokenIsQuarantined(t *testing.T) {
	b := wellBreaker(t)
	b.Fail(Refused, t0)
	b.Fail(Refused, t0)
	b.Fail(Broken, t0)
	b.ProbeOK(t0.Add(29 * time.Second))
	if b.State() != Open || b.Reason() != Broken {
		t.Fatalf("29 s after a CUDA error it is %s because of %s", b.State(), b.Reason())
	}
}

func TestStall(t *testing.T) {
	b := wellBreaker(t)
	if b.Stalled(0, t0.Add(time.Hour)) {
		t.Fatal("an idle worker is called stalled")
	}
	b.Began(t0)
	if b.Stalled(0, t0.Add(9*time.Second)) || !b.Stalled(0, t0.Add(11*time.Second)) {
		t.Fatal("the limit is not 10 s")
	}
	if b.Stalled(30*time.Second, t0.Add(35*time.Second)) {
		t.Fatal("a long prompt that was expected to take 30 s is called a stall after 35 s")
	}
	b.Progress(t0.Add(8 * time.Second))
	if b.Stalled(0, t0.Add(15*time.Second)) {
		t.Fatal("progress did not count")
	}
	b.Ended()
	if b.Stalled(0, t0.Add(time.Hour)) {
		t.Fatal("a worker whose requests ended is called stalled")
	}
}

func TestAFailedProbeShortensThePatienceWithSilence(t *testing.T) {
	b := wellBreaker(t)
	b.Began(t0)
	b.Fail(Probe, t0.Add(time.Second))
	if b.Stalled(0, t0.Add(2*time.Second)) || !b.Stalled(0, t0.Add(3*time.Second)) {
		t.Fatal("the limit is not a quarter of 10 s")
	}
	if b.Stalled(5*time.Second, t0.Add(7*time.Second)) {
		t.Fatal("what was expected to take 5 s is called a stall after 7 s")
	}
	b.ProbeOK(t0.Add(3 * time.Second))
	if b.Stalled(0, t0.Add(9*time.Second)) {
		t.Fatal("a probe that succeeded again did not restore the patience")
	}
}

func TestDeadIsOutAndSilent(t *testing.T) {
	for kind, want := range map[Kind]bool{Probe: true, Stalled: true, Broken: true, OOM: true, GPU: true, Soft: false, Refused: false, Slow: false, Erring: false} {
		b := wellBreaker(t)
		b.Began(t0)
		for range 5 {
			b.Fail(kind, t0)
		}
		if b.Dead(t0.Add(time.Second)) {
			t.Errorf("%s: dead after a second of silence", kind)
		}
		if got := b.Dead(t0.Add(3 * time.Second)); got != want {
			t.Errorf("%s: dead is %v after 3 s of silence, want %v", kind, got, want)
		}
		b.Progress(t0.Add(2500 * time.Millisecond))
		if b.Dead(t0.Add(3 * time.Second)) {
			t.Errorf("%s: a worker that emits is called dead", kind)
		}
		b.Ended()
		if b.Dead(t0.Add(time.Hour)) {
			t.Errorf("%s: a worker that holds nothing is called dead", kind)
		}
	}
	b := wellBreaker(t)
	b.Began(t0)
	if b.Dead(t0.Add(time.Hour)) {
		t.Error("a worker that is not out is called dead")
	}
}

func TestClassify(t *testing.T) {
	const request = `{"model":"m","messages":[{"role":"user","content":"tell me a story"}]}`
	for _, c := range []struct {
		status        int
		body, request string
		kind          Kind
		ok            bool
	}{
		{400, `{"error":"CUDA error"}`, request, 0, false},
		{429, ``, request, 0, false},
		{500, `{"message":"CUDA error: an illegal memory access was encountered"}`, request, Broken, true},
		{500, `{"error":{"message":"CUDA error: device lost","type":"InternalServerError","code":500}}`, request, Broken, true},
		{500, `{"error":{"message":"failed","type":"OutOfMemoryError"}}`, request, OOM, true},
		{500, `{"detail":"NCCL error: unhandled"}`, request, Broken, true},
		{500, `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate`, request, OOM, true},
		{503, `EngineDeadError: EngineCore encountered an issue`, request, Broken, true},
		{500, `internal`, request, Soft, true},
		{503, `overloaded`, request, 0, false},
		// What the engine quotes of the request says nothing of the worker.
		{500, `{"error":{"message":"cannot parse: CUDA error"}}`, `{"prompt":"CUDA error"}`, Soft, true},
		{500, `{"error":{"message":"cannot parse: CUDA error"}}`, `{"prompt":"\u0043UDA\terror"}`, Soft, true},
		{500, `{"error":{"message":"cannot parse: CUDA error"}}`, `{"content":[{"text":"CUDA "},{"text":"error"}]}`, Soft, true},
		{500, `{"error":{"message":"cannot parse: CUDA error"}}`, `{"prompt":[[791, 3446]]}`, Soft, true},
		{500, `{"error":{"message":"cannot parse: CUDA error"}}`, ``, Soft, true},
		{500, `cannot parse: hip error`, `{"prompt":"HIP error"}`, Soft, true},
		{503, `{"error":{"message":"EngineDeadError"}}`, `{"prompt":"enginedeaderror"}`, 0, false},
		{500, `{"error":{"message":"CUDA error"},"prompt":"x"}`, `{"prompt":"a hip error"}`, Broken, true},
		// Only the engine's own fields count.
		{500, `{"error":{"message":"failed"},"input":"CUDA error"}`, request, Soft, true},
		{500, `{"detail":[{"msg":"bad","input":"CUDA error"}]}`, request, Soft, true},
		{500, `{"error":{"message":"failed","input":"CUDA error"}}`, request, Soft, true},
	} {
		if k, ok := Classify(c.status, []byte(c.body), []byte(c.request)); k != c.kind || ok != c.ok {
			t.Errorf("%d %q to %q: %s %v, want %s %v", c.status, c.body, c.request, k, ok, c.kind, c.ok)
		}
	}
}

// FuzzClassify reads any answer to any request. A body that quotes the whole request, and nothing else, never tells of a
// broken worker.
func FuzzClassify(f *testing.F) {
	f.Add(500, []byte(`{"error":{"message":"CUDA error"}}`), []byte(`{"prompt":"\\u0043UDA error"}`))
	f.Add(503, []byte("engine core"), []byte(`[`))
	f.Fuzz(func(t *testing.T, status int, body, request []byte) {
		Classify(status, body, request)
		if k, ok := Classify(500, request, request); ok && k != Soft {
			t.Errorf("the request itself, quoted, is read as %s", k)
		}
	})
}

// anyNews tells a breaker something: -3 is a warm-up that passed, -2 a request that was served, -1 a probe that was
// answered, and the rest are kinds of failures.
func anyNews(t *rapid.T, b *Breaker, now time.Time) (op int) {
	op = rapid.IntRange(-3, int(numKinds)-1).Draw(t, "op")
	switch op {
	case -3:
		b.Warmed(now)
	case -2:
		b.OK(now)
	case -1:
		b.ProbeOK(now)
	default:
		b.Fail(Kind(op), now)
	}
	return op
}

// TestOpenHoldsItsPromise feeds random news: an open worker never takes requests before its backoff and a probe.
func TestOpenHoldsItsPromise(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := New(Config{WarmUp: rapid.Bool().Draw(t, "warm")}, rand.New(rand.NewPCG(1, 2)))
		now := t0
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(-500, 3000).Draw(t, "ms")) * time.Millisecond)
			before, until := b.State(), b.Until()
			op := anyNews(t, b, now)
			if before == Open && b.State() != Open && (op != -1 || now.Before(until)) {
				t.Fatalf("left open by operation %d, %v before its time", op, until.Sub(now))
			}
			if !before.Takes() && b.State().Takes() && b.cfg.WarmUp && op != -3 {
				t.Fatalf("takes requests after operation %d without a warm-up", op)
			}
			if s := b.Share(now); s < 0.1 || s > 1 {
				t.Fatalf("share is %v", s)
			}
			if d := b.Until().Sub(now); b.State() == Open && before != Open && d > 75*time.Second {
				t.Fatalf("open for %v", d)
			}
		}
	})
}
