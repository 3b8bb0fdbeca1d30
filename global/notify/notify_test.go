package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const testSecret = "0123456789abcdef0123456789abcdef"

func writeSecret(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// fakeReceiver answers deliveries without a network.
type fakeReceiver struct {
	mu      sync.Mutex
	bodies  []string
	headers []http.Header
	times   []time.Time
	answer  func(n int) (status int, err error) // of the delivery with this number, from 1
}

func (f *fakeReceiver) RoundTrip(r *http.Request) (*http.Response, error) {
	b, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.bodies, f.headers, f.times = append(f.bodies, string(b)), append(f.headers, r.Header), append(f.times, time.Now())
	n := len(f.bodies)
	f.mu.Unlock()
	status, err := http.StatusNoContent, error(nil)
	if f.answer != nil {
		status, err = f.answer(n)
	}
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Body: http.NoBody, Header: http.Header{}, Request: r}, nil
}

func (f *fakeReceiver) count() int { f.mu.Lock(); defer f.mu.Unlock(); return len(f.bodies) }

// runSender runs a sender in a bubble of synctest until do returns.
func runSender(t *testing.T, f *fakeReceiver, events []string, do func(s *Sender)) {
	secret := writeSecret(t, testSecret+"\n")
	synctest.Test(t, func(t *testing.T) {
		s := NewSender("g1", []Endpoint{{Name: "hooks.example", URL: "https://hooks.example/x", SecretFile: secret, Events: events}}, f, nil)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		do(s)
		cancel()
		<-done
	})
}

// TestDeliveryIsSigned checks a delivery over HTTP as a receiver does.
func TestDeliveryIsSigned(t *testing.T) {
	got := make(chan *http.Request, 1)
	body := make(chan []byte, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body <- b
		got <- r
	}))
	defer srv.Close()
	s := NewSender("g1", []Endpoint{{Name: "here", URL: srv.URL, SecretFile: writeSecret(t, testSecret)}}, nil, nil)
	e := NewTestEvent("g1", "ann", time.Now())
	if out := s.SendTest(t.Context(), e, ""); len(out) != 1 || out[0].Err != nil {
		t.Fatalf("%+v", out)
	}
	r, b := <-got, <-body
	var received Event
	if err := json.Unmarshal(b, &received); err != nil || received.ID != e.ID || received.Type != TestEvent || received.Node != "g1" {
		t.Errorf("%s, %v", b, err)
	}
	header := r.Header.Get(HeaderSignature)
	stamp, _, _ := strings.Cut(strings.TrimPrefix(header, "t="), ",")
	var unix int64
	if _, err := fmt.Sscan(stamp, &unix); err != nil || time.Since(time.Unix(unix, 0)).Abs() > time.Minute {
		t.Fatalf("time of %q: %v", header, err)
	}
	if want := SignBody([]byte(testSecret), b, time.Unix(unix, 0)); header != want {
		t.Errorf("signature %q, want %q", header, want)
	}
	if SignBody([]byte(testSecret), append(b, ' '), time.Unix(unix, 0)) == header || SignBody([]byte("another secret of 24 bytes"), b, time.Unix(unix, 0)) == header || SignBody([]byte(testSecret), b, time.Unix(unix+1, 0)) == header {
		t.Error("the signature does not depend on body, secret and time")
	}
	if r.Header.Get(HeaderDelivery) != e.ID || r.Header.Get(HeaderEvent) != TestEvent {
		t.Errorf("headers %v", r.Header)
	}
}

// TestSignatureOfKnownInput pins the signature, which receivers compute by themselves.
func TestSignatureOfKnownInput(t *testing.T) {
	const want = "t=1790000000,v1=f4346a65c05b64dd6b51506d8bb57787fd3805be72b2212c4b3b6e27d36316eb" // printf '1790000000.{"a":1}' | openssl dgst -sha256 -hmac SECRET
	if got := SignBody([]byte(testSecret), []byte(`{"a":1}`), time.Unix(1_790_000_000, 0)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestReceiverAwayIsRetried: deliveries are repeated with growing pauses until the receiver is back; the events arrive in order.
func TestReceiverAwayIsRetried(t *testing.T) {
	f := &fakeReceiver{answer: func(n int) (int, error) {
		switch {
		case n <= 3:
			return 0, fmt.Errorf("connection refused")
		case n == 4:
			return http.StatusServiceUnavailable, nil
		}
		return http.StatusOK, nil
	}}
	runSender(t, f, nil, func(s *Sender) {
		s.AddEvent(Event{ID: "a", Type: DrainBegun})
		s.AddEvent(Event{ID: "b", Type: DrainEnded})
		time.Sleep(time.Minute)
		synctest.Wait()
		q := s.endpoints[0]
		if q.delivered.Load() != 2 || q.failed.Load() != 4 || q.dropped.Load() != 0 || len(q.waiting) != 0 {
			t.Errorf("%d delivered, %d failed, %d dropped, %d wait", q.delivered.Load(), q.failed.Load(), q.dropped.Load(), len(q.waiting))
		}
	})
	if f.count() != 6 || !strings.Contains(f.bodies[4], `"id":"a"`) || !strings.Contains(f.bodies[5], `"id":"b"`) {
		t.Fatalf("%d deliveries: %v", f.count(), f.bodies)
	}
	for i := 2; i < 5; i++ {
		if earlier, later := f.times[i-1].Sub(f.times[i-2]), f.times[i].Sub(f.times[i-1]); later <= earlier {
			t.Errorf("pause %v after a pause of %v", later, earlier)
		}
	}
	if f.headers[0].Get(HeaderSignature) == f.headers[3].Get(HeaderSignature) {
		t.Error("a later delivery has the time of the first")
	}
}

// TestQueueIsBoundedAndNeverBlocks: with the receiver away for long, events beyond the bound are dropped and counted, and one event is
// given up after maxDeliveries.
func TestQueueIsBoundedAndNeverBlocks(t *testing.T) {
	f := &fakeReceiver{answer: func(int) (int, error) { return 0, fmt.Errorf("no route") }}
	runSender(t, f, nil, func(s *Sender) {
		s.AddEvent(Event{ID: "first", Type: DrainBegun})
		synctest.Wait() // the first is being sent
		start := time.Now()
		for range maxWaiting + 7 {
			s.AddEvent(Event{ID: "next", Type: DrainBegun})
		}
		if q := s.endpoints[0]; q.dropped.Load() != 7 || len(q.waiting) != maxWaiting || time.Since(start) != 0 {
			t.Errorf("%d dropped, %d wait, after %v", q.dropped.Load(), len(q.waiting), time.Since(start))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if q := s.endpoints[0]; q.dropped.Load() < 8 {
			t.Errorf("%d dropped after an hour: an event is never given up", q.dropped.Load())
		}
	})
}

// TestRefusedEventsAreNotRepeated: 404 stays 404; and an endpoint gets only the types that it selects.
func TestRefusedEventsAreNotRepeated(t *testing.T) {
	f := &fakeReceiver{answer: func(int) (int, error) { return http.StatusNotFound, nil }}
	runSender(t, f, []string{DrainBegun}, func(s *Sender) {
		s.AddEvent(Event{ID: "a", Type: DrainBegun})
		s.AddEvent(Event{ID: "b", Type: RegionBack})
		time.Sleep(time.Hour)
		synctest.Wait()
		if q := s.endpoints[0]; q.dropped.Load() != 1 {
			t.Errorf("%d dropped", q.dropped.Load())
		}
	})
	if f.count() != 1 {
		t.Errorf("%d deliveries, want 1", f.count())
	}
}

func TestErrorsHideTheURLAndSecretsAreChecked(t *testing.T) {
	s := NewSender("g1", []Endpoint{{Name: "here", URL: "http://127.0.0.1:1/secret-path", SecretFile: writeSecret(t, testSecret)}}, nil, nil)
	if out := s.SendTest(t.Context(), Event{}, "here"); out[0].Err == nil || strings.Contains(out[0].Err.Error(), "secret-path") {
		t.Errorf("%v", out[0].Err)
	}
	if _, err := ReadSecret(writeSecret(t, "short")); err == nil || strings.Contains(err.Error(), `"short"`) {
		t.Errorf("a short secret: %v", err)
	}
	if _, err := ReadSecret("nowhere"); err == nil {
		t.Error("a missing file is accepted")
	}
}

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// kindsOf returns the types and subjects of events.
func kindsOf(events []Event) (out string) {
	for _, e := range events {
		out += e.Type + " " + e.Subject + "; "
	}
	return out
}

// TestWatcherFindsEachChangeOnce plays a fleet's changes on the leader.
func TestWatcherFindsEachChangeOnce(t *testing.T) {
	w, now := NewWatcher(), noon
	s := FleetState{Unreachable: map[string]bool{"fra": false, "iad": true}, SpecVersion: 3, Leads: true, Drains: []DrainState{{Path: "old", At: noon}}}
	step := func(after time.Duration, want string) {
		t.Helper()
		now = now.Add(after)
		c := s
		c.Drains = append([]DrainState(nil), s.Drains...)
		if got := kindsOf(w.ObserveState(&c, now)); got != want {
			t.Errorf("at %s: %q, want %q", now.Sub(noon), got, want)
		}
	}
	step(0, "") // what was so before is not new
	step(time.Minute, "")
	s.Unreachable = map[string]bool{"fra": true, "iad": true}
	step(time.Second, "")
	step(time.Second, "") // a short loss is none
	step(unreachableAfter, "region_unreachable fra; ")
	step(time.Minute, "")
	s.Unreachable = map[string]bool{"fra": false, "iad": true}
	step(time.Second, "region_back fra; ")
	s.Unreachable = map[string]bool{"fra": true, "iad": true}
	step(time.Second, "")
	s.Unreachable = map[string]bool{"fra": false, "iad": false}
	step(time.Second, "region_back iad; ") // an earlier leader has reported that it was unreachable
	s.Drains = append(s.Drains, DrainState{Path: "fra/a", Actor: "ann", At: now})
	step(time.Second, "drain_begun fra/a; ")
	s.Drains[1].At = now // replaced by another
	step(time.Second, "drain_begun fra/a; drain_ended fra/a; ")
	s.Drains = s.Drains[:1]
	step(time.Second, "drain_ended fra/a; ")
	s.Rollout = &RolloutState{Number: 9}
	step(time.Second, "")
	s.Rollout, s.SpecVersion = nil, 4
	step(time.Second, "rollout_ended stage 9; ")
	s.UsedUp = []UsedLimit{{Tenant: "acme", Resource: "tokens", Day: 5}}
	step(time.Second, "limit_used_up acme; ")
	step(time.Second, "")
	s.UsedUp[0].Day = 6
	s.UsedUp = []UsedLimit{{Tenant: "acme", Resource: "tokens", Day: 6}}
	step(time.Second, "limit_used_up acme; ")
}

func TestRolloutEventNamesTheResult(t *testing.T) {
	for _, c := range []struct {
		everywhere, changed bool
		want                string
	}{{false, true, "promoted"}, {false, false, "rolled back"}, {true, false, "promoted"}, {true, true, "rolled back"}} {
		w := NewWatcher()
		w.ObserveState(&FleetState{Leads: true, SpecVersion: 3, Rollout: &RolloutState{Number: 1, Everywhere: c.everywhere}}, noon)
		s := FleetState{Leads: true, SpecVersion: 3}
		if c.changed {
			s.SpecVersion++
		}
		if out := w.ObserveState(&s, noon); len(out) != 1 || !strings.Contains(out[0].Text, c.want) {
			t.Errorf("%+v: %+v, want %s", c, out, c.want)
		}
	}
}

// TestChangeOfLeaderRepeatsNothing: a follower sends nothing. When the leader fails, its successor sends what happened since the leader
// was last known, and nothing that the leader has sent.
func TestChangeOfLeaderRepeatsNothing(t *testing.T) {
	w := NewWatcher()
	s := FleetState{LeaderAt: noon}
	w.ObserveState(&s, noon)
	for i, at := range []time.Duration{1, 10, 20} {
		s.Drains = append(s.Drains, DrainState{Path: fmt.Sprint("z", i), At: noon.Add(at * time.Second)})
		if at < 20 { // it dies before the third drain
			s.LeaderAt = noon.Add(at*time.Second + time.Second/2)
		}
		c := s
		c.Drains = append([]DrainState(nil), s.Drains...)
		if out := w.ObserveState(&c, noon.Add(at*time.Second)); out != nil {
			t.Fatalf("a follower sends %v", out)
		}
	}
	s.Leads = true
	if got := kindsOf(w.ObserveState(&s, noon.Add(22*time.Second))); got != "drain_begun z2; " {
		t.Errorf("the new leader sends %q, want what the old one did not live to send", got)
	}
	if out := w.ObserveState(&s, noon.Add(23*time.Second)); len(out) != 0 {
		t.Errorf("and then %v", out)
	}
	// A node that was no leader for long forgets.
	s.Leads, s.Drains = false, nil
	w.ObserveState(&s, noon.Add(24*time.Second))
	w.ObserveState(&s, noon.Add(time.Hour))
	s.Leads = true
	if out := w.ObserveState(&s, noon.Add(time.Hour+time.Second)); len(out) != 0 {
		t.Errorf("an hour later %v", out)
	}
}

func TestCertificatesAreReportedOnceADay(t *testing.T) {
	w := NewCertificateWatcher()
	ends := map[string]time.Time{"tls.cert": noon.Add(8 * 24 * time.Hour), "tls.ca": noon.Add(900 * 24 * time.Hour)}
	n := 0
	for h := range 10 * 24 {
		n += len(w.ObserveExpiries("g1", ends, noon.Add(time.Duration(h)*time.Hour)))
	}
	if n != 9 {
		t.Errorf("%d events in ten days, want one a day from the seventh day before the expiry", n)
	}
	ends["tls.cert"] = noon.Add(400 * 24 * time.Hour)
	if out := w.ObserveExpiries("g1", ends, noon.Add(240*time.Hour)); len(out) != 0 {
		t.Errorf("a renewed certificate: %v", out)
	}
}

// TestAddEventFromManyGoroutines is for the race detector.
func TestAddEventFromManyGoroutines(t *testing.T) {
	f := &fakeReceiver{}
	runSender(t, f, nil, func(s *Sender) {
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 20 {
					s.AddEvent(Event{Type: DrainBegun})
				}
			})
		}
		all.Wait()
		time.Sleep(time.Second)
	})
	if f.count() != 160 {
		t.Errorf("%d of 160 delivered", f.count())
	}
}
