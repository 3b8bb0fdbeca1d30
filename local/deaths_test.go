package local_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// startPoisonableZone starts a zone of n workers that die on requests which contain "poison". They close the
// connection before the answer, or in a stream after its first event. deaths counts them.
func startPoisonableZone(t *testing.T, n int) (url string, deaths func() int64) {
	t.Helper()
	var mu sync.Mutex
	var dead int64
	a, _ := startZone(t, n, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		stream := bytes.Contains(body, []byte(`"stream":true`))
		if stream {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"id":"a","choices":[{"index":0,"delta":{"content":"one "},"finish_reason":null}]}`+"\n\n")
			w.(http.Flusher).Flush()
		}
		switch {
		case bytes.Contains(body, []byte("poison")):
			mu.Lock()
			dead++
			mu.Unlock()
			panic(http.ErrAbortHandler)
		case bytes.Contains(body, []byte("memory")):
			mu.Lock()
			dead++
			mu.Unlock()
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"error":{"message":"CUDA error: device lost"}}`)
		case stream:
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		default:
			_, _ = io.WriteString(w, `{"choices":[]}`)
		}
	})
	return "http://" + a.Addr().String(), func() int64 { mu.Lock(); defer mu.Unlock(); return dead }
}

// TestNoRequestKillsMoreThanTwoWorkers: one client makes three tries against six workers. The second death is the
// last, and the answer makes the client's library stop. Other requests are served.
func TestNoRequestKillsMoreThanTwoWorkers(t *testing.T) {
	for name, body := range map[string]string{
		"whole":         `{"model":"m","messages":[{"role":"user","content":"poison"}]}`,
		"stream":        `{"model":"m","stream":true,"messages":[{"role":"user","content":"poison"}]}`,
		"final stream":  `{"model":"m","stream":true,"stop":["x"],"messages":[{"role":"user","content":"poison"}]}`,
		"broken engine": `{"model":"m","messages":[{"role":"user","content":"memory"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			url, deaths := startPoisonableZone(t, 6)
			send := func(body string) (*http.Response, string) {
				resp, err := testClient.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = resp.Body.Close() }()
				text, _ := io.ReadAll(resp.Body)
				return resp, string(text)
			}
			for range 3 {
				send(body)
			}
			resp, text := send(body)
			if resp.StatusCode != http.StatusUnprocessableEntity || resp.Header.Get("X-Should-Retry") != "false" || !strings.Contains(text, `"request_kills_workers"`) {
				t.Errorf("%d %v %s", resp.StatusCode, resp.Header, text)
			}
			if n := deaths(); n > 2 {
				t.Errorf("%d workers died under one request, want 2 at most", n)
			}
			if resp, text := send(`{"model":"m","messages":[{"role":"user","content":"hello"}]}`); resp.StatusCode != http.StatusOK {
				t.Errorf("another request is answered %d %s", resp.StatusCode, text)
			}
		})
	}
}

// TestStreamEndsAfterSecondWorkerDeath: an event in the stream tells the client not to retry.
func TestStreamEndsAfterSecondWorkerDeath(t *testing.T) {
	url, deaths := startPoisonableZone(t, 4)
	a := readStream(t, url, "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"poison"}]}`)
	if a.failure != "request_kills_workers" || deaths() != 2 {
		t.Errorf("%+v after %d deaths", a, deaths())
	}
}

// TestSharedWorkerDeathCondemnsNoRequest: three requests are in flight when the worker dies. They are retried, and
// retried again after another such death.
func TestSharedWorkerDeathCondemnsNoRequest(t *testing.T) {
	die := make(chan struct{})
	begun := make(chan struct{}, 16)
	var first sync.Once
	var victim string
	a, calls := startZone(t, 1, func(w http.ResponseWriter, r *http.Request) {
		first.Do(func() { victim = r.Host })
		select {
		case <-die:
			_, _ = io.WriteString(w, `{"choices":[]}`)
		default:
			begun <- struct{}{}
			<-die
			panic(http.ErrAbortHandler)
		}
	})
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			postChat(t, a, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"request %d"}]}`, i))
		})
	}
	for range 3 {
		<-begun
	}
	close(die)
	all.Wait()
	testkit.Eventually(t, "the worker is used again", func() bool { return countReady(a) == 1 })
	before := sumCalls(calls)
	for i := range 3 {
		if resp, text := postChat(t, a, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"request %d"}]}`, i)); resp.StatusCode != http.StatusOK {
			t.Errorf("request %d of many under which %s died: %d %s", i, victim, resp.StatusCode, text)
		}
	}
	if sumCalls(calls)-before != 3 {
		t.Errorf("3 requests were sent %d times", sumCalls(calls)-before)
	}
}

// TestRefusalOfADeadEngineReportsTheDeath: the zone has no retry left, and its answer reports the death to the
// gateway.
func TestRefusalOfADeadEngineReportsTheDeath(t *testing.T) {
	for _, status := range []int{http.StatusServiceUnavailable, http.StatusInternalServerError} {
		p := newGatewayHarness(t)
		worker := newHandlerWorker(t, "w1", func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if bytes.Contains(body, []byte("prompt")) { // the warm-up
				return
			}
			http.Error(w, `{"error":{"message":"EngineDeadError"}}`, status)
		})
		a := startAgentWith(t, p.joinGateway, worker)
		resp, text, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: "acme"}, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
		if err != nil {
			t.Fatal(err)
		}
		reported := resp.Header.Get(forward.HeaderDeaths) + resp.Trailer.Get(forward.HeaderDeaths)
		if resp.StatusCode != status || reported != "1" || !strings.Contains(text, "EngineDeadError") {
			t.Errorf("%d %s %v: %q deaths", resp.StatusCode, text, resp.Header, reported)
		}
	}
}
