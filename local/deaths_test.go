package local_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// mortalZone is a zone of n workers that die under requests that hold "poison": they close the connection before the answer or,
// of a stream, after its first event. It counts their deaths.
func mortalZone(t *testing.T, n int) (url string, deaths func() int64) {
	t.Helper()
	var mu sync.Mutex
	var dead int64
	a, _ := zoneOf(t, n, func(w http.ResponseWriter, r *http.Request) {
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

// TestNoRequestKillsMoreThanTwoWorkers: one client, three tries, six workers. The second death is the last, and the answer tells
// the client's library to stop. Other requests are served.
func TestNoRequestKillsMoreThanTwoWorkers(t *testing.T) {
	for name, body := range map[string]string{
		"whole":         `{"model":"m","messages":[{"role":"user","content":"poison"}]}`,
		"stream":        `{"model":"m","stream":true,"messages":[{"role":"user","content":"poison"}]}`,
		"final stream":  `{"model":"m","stream":true,"stop":["x"],"messages":[{"role":"user","content":"poison"}]}`,
		"broken engine": `{"model":"m","messages":[{"role":"user","content":"memory"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			url, deaths := mortalZone(t, 6)
			send := func(body string) (*http.Response, string) {
				resp, err := client.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
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

// TestAStreamUnderWhichTwoWorkersDiedEndsForGood: the client reads in the stream that another try is of no use.
func TestAStreamUnderWhichTwoWorkersDiedEndsForGood(t *testing.T) {
	url, deaths := mortalZone(t, 4)
	a := stream(t, url, "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"poison"}]}`)
	if a.failure != "request_kills_workers" || deaths() != 2 {
		t.Errorf("%+v after %d deaths", a, deaths())
	}
}

// TestAWorkerThatDiesUnderManyCondemnsNone: three requests are under way when it dies. They are tried again, and again after
// another such death.
func TestAWorkerThatDiesUnderManyCondemnsNone(t *testing.T) {
	die := make(chan struct{})
	begun := make(chan struct{}, 16)
	var first sync.Once
	var victim string
	a, calls := zoneOf(t, 1, func(w http.ResponseWriter, r *http.Request) {
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
			post(t, a, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"request %d"}]}`, i))
		})
	}
	for range 3 {
		<-begun
	}
	close(die)
	all.Wait()
	eventually(t, "the worker is used again", func() bool { return ready(a) == 1 })
	before := sum(calls)
	for i := range 3 {
		if resp, text := post(t, a, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"request %d"}]}`, i)); resp.StatusCode != http.StatusOK {
			t.Errorf("request %d of many under which %s died: %d %s", i, victim, resp.StatusCode, text)
		}
	}
	if sum(calls)-before != 3 {
		t.Errorf("3 requests were sent %d times", sum(calls)-before)
	}
}
