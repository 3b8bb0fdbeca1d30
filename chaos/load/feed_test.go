package load

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// listSource is roots in a slice.
type listSource []*Request

func (l *listSource) NextRequest() (*Request, error) {
	if len(*l) == 0 {
		return nil, io.EOF
	}
	r := (*l)[0]
	*l = (*l)[1:]
	return r, nil
}

// testFollowUps makes one more request, a second after each answer.
type testFollowUps struct{ times int }

func (a *testFollowUps) pushNext(r *Request, push func(time.Duration, *Request)) {
	if a.times--; a.times >= 0 {
		push(time.Second/2, &Request{Session: r.Session, Turn: r.Turn + 1, continuation: a})
	}
}

func openWorkload(t testing.TB, w Workload) *Feed {
	t.Helper()
	f, err := OpenWorkload(w)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// playFeed serves every request of a feed in the time that serve returns, and returns them in order.
func playFeed(t testing.TB, f *Feed, most int, serve func(*Request) (took time.Duration, ok bool)) []*Request {
	t.Helper()
	type flight struct {
		r   *Request
		end time.Duration
		ok  bool
	}
	var flying []flight
	var all []*Request
	var now time.Duration
	for len(all) < most {
		due, more, err := f.Peek()
		if err != nil {
			t.Fatal(err)
		}
		first := -1
		for i := range flying {
			if first < 0 || flying[i].end < flying[first].end {
				first = i
			}
		}
		switch {
		case first >= 0 && (!more || flying[first].end <= due):
			x := flying[first]
			flying = append(flying[:first], flying[first+1:]...)
			now = x.end
			f.FinishRequest(x.r, now, x.ok)
		case more:
			r := f.Pop()
			if r.At != due || r.At < now || r.ID != uint64(len(all)+1) {
				t.Fatalf("request %d (number %d) is due at %v, was reported for %v, and it is %v", len(all)+1, r.ID, r.At, due, now)
			}
			now = r.At
			all = append(all, r)
			took, ok := serve(r)
			flying = append(flying, flight{r, now + took, ok})
		default:
			return all
		}
	}
	return all
}

func answerInstantly(*Request) (time.Duration, bool) { return 0, true }

func TestFeedKeepsTimeOrder(t *testing.T) {
	f := NewFeed(&listSource{{At: 1 * time.Second, Session: 1, continuation: &testFollowUps{2}}, {At: 2 * time.Second, Session: 2}, {At: 9 * time.Second, Session: 3}}, 5*time.Second)
	var got []string
	for _, r := range playFeed(t, f, 100, func(*Request) (time.Duration, bool) { return 300 * time.Millisecond, true }) {
		got = append(got, r.At.String())
	}
	if want := "1s 1.8s 2s 2.6s"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s: two follow, and nothing is due after 5 s", got, want)
	}
}

func TestRefusedClientPauses(t *testing.T) {
	f := NewFeed(&listSource{{Session: 1, continuation: &testFollowUps{1}}}, 0)
	r := f.Pop()
	f.FinishRequest(r, time.Minute, false)
	if due, ok, _ := f.Peek(); !ok || due != time.Minute+time.Second {
		t.Errorf("goes on at %v (%v), want a second after it was refused", due, ok)
	}
}

func TestFeedReportsBadTrace(t *testing.T) {
	f := openWorkload(t, Workload{Name: "w1", Trace: "testdata/azure.csv"})
	if n := len(playFeed(t, f, 1000, answerInstantly)); n != 40 {
		t.Errorf("%d requests", n)
	}
	bad := NewFeed(&traceSource{workload: &Workload{Regions: []ClientRegion{{}}}, source: ReadAzure(strings.NewReader("2030-01-01 00:00:00.0,1\n"), 1)}, 0)
	if _, ok, err := bad.Peek(); ok || err == nil || !strings.Contains(err.Error(), "line 1: 2 fields") {
		t.Errorf("%v %v", ok, err)
	}
	if bad.Pop() != nil {
		t.Error("a request out of nothing")
	}
}

func TestInvalidWorkloadsAreRejected(t *testing.T) {
	for says, w := range map[string]Workload{
		"use one of w1":       {Name: "w99"},
		"no such file":        {Name: "w1", Trace: "testdata/none"},
		"rate -1":             {Name: "w1", Rate: -1},
		"clients: 2 numbers":  {Name: "w1", Clients: []int{1, 2}},
		"are counts":          {Name: "w1", Thin: -1},
		"is not a part":       {Name: "w1", Regions: []ClientRegion{{Name: "x", Share: -1}}},
		"are lengths of time": {Name: "w1", For: -1},
	} {
		if _, err := OpenWorkload(w); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", w, err, says)
		}
	}
}

func TestThinningKeepsSessionsWhole(t *testing.T) {
	roots := func() *listSource {
		var l listSource
		for i := range 4000 {
			l = append(l, &Request{At: time.Duration(i), Session: mixBits(uint64(i % 400))})
		}
		return &l
	}
	kept := map[uint64]int{}
	thin := ThinSessions(roots(), 4, 1)
	for {
		r, err := thin.NextRequest()
		if errors.Is(err, io.EOF) {
			break
		}
		kept[r.Session]++
	}
	if len(kept) < 70 || len(kept) > 130 {
		t.Errorf("%d of 400 sessions are kept, want about 100", len(kept))
	}
	for s, n := range kept {
		if n != 10 {
			t.Errorf("session %x keeps %d of 10 requests", s, n)
		}
	}
}

// TestRateScalingKeepsOrder: scaling a trace to a rate changes nothing else.
func TestRateScalingKeepsOrder(t *testing.T) {
	own := playFeed(t, openWorkload(t, Workload{Name: "w2", Trace: "testdata/mooncake.jsonl", Seed: 1}), 1000, answerInstantly)
	fast := playFeed(t, openWorkload(t, Workload{Name: "w2", Trace: "testdata/mooncake.jsonl", Seed: 1, Rate: 50}), 1000, answerInstantly)
	span := fast[len(fast)-1].At
	if len(own) != len(fast) || !isNear(float64(len(fast))/span.Seconds(), 50, 0.02) {
		t.Errorf("%d of %d requests in %v, want 50/s", len(fast), len(own), span)
	}
	for i := range own {
		if own[i].PromptTokens != fast[i].PromptTokens || own[i].Session != fast[i].Session || own[i].Region != 0 {
			t.Fatalf("request %d is another one", i)
		}
	}
}

// TestMinIntervalDelaysEarlyRequests: with a minimum interval a client does not send earlier after a fast answer, and
// later only if the answer is late.
func TestMinIntervalDelaysEarlyRequests(t *testing.T) {
	const every = 50 * time.Second
	for _, takes := range []time.Duration{time.Second, 80 * time.Second} {
		f := openWorkload(t, Workload{Name: "chats", Clients: []int{1}, Every: every, For: time.Hour, Seed: 1})
		var last time.Duration
		for i := range 20 {
			r := f.Pop()
			if r == nil {
				t.Fatal("the client has gone")
			}
			if gap := r.At - last; i > 0 && (gap < max(every, takes) || takes < every && gap != every) {
				t.Errorf("answers take %v, and the client asks again after %v", takes, gap)
			}
			last = r.At
			f.FinishRequest(r, r.At+takes, true)
		}
	}
}
