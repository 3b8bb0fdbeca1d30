package local_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
)

// TestBodiesAreBoundedInBytesAtTheZone: a body without room in memory is refused with 503 and Retry-After. This holds
// on every path with a buffered body, with or without a declared length. The memory of other bodies is released when
// they are answered.
func TestBodiesAreBoundedInBytesAtTheZone(t *testing.T) {
	a := startAgentWith(t, func(c *local.Config) { c.BodyMemory = 40_000 }, newChatWorker(t, "w1", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(rw, `{"choices":[]}`)
	}))
	send := func(path, body string, declared bool) (*http.Response, string) {
		t.Helper()
		var in io.Reader = strings.NewReader(body)
		if !declared {
			in = io.MultiReader(in)
		}
		resp, err := testClient.Post("http://"+a.Addr().String()+path, "application/json", in)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(text)
	}
	for path, form := range map[string]string{
		"/v1/chat/completions": `{"model":"m","messages":[{"role":"user","content":%q}]}`,
		"/v1/embeddings":       `{"model":"m","input":%q}`,
		"/v2/models/m/infer":   `{"inputs":[{"name":"x","shape":[1,1],"datatype":"BYTES","data":[%q]}]}`,
	} {
		for _, declared := range []bool{true, false} {
			for range 5 { // together more than the limit
				if resp, text := send(path, fmt.Sprintf(form, strings.Repeat("x", 12_000)), declared); resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(text, "memory") {
					t.Errorf("%s, declared %v: a body that has room got %d %s", path, declared, resp.StatusCode, text)
				}
			}
			resp, text := send(path, fmt.Sprintf(form, strings.Repeat("x", 24_000)), declared)
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(text, "memory") {
				t.Errorf("%s, declared %v: a body without room got %d %v %s", path, declared, resp.StatusCode, resp.Header, text)
			}
		}
	}
}

// TestResumableStreamKeepsItsBodyInMemory: the body of a stream that can be resumed on another worker, or that may be
// hedged, stays charged until the stream ends. Any other body is released at the first byte of the answer.
func TestResumableStreamKeepsItsBodyInMemory(t *testing.T) {
	for name, c := range map[string]struct {
		body   string
		hedged bool
		held   int
	}{"it may": {streamedChat, false, len(streamedChat)}, "it may not": {unresumableChat, false, 0}, "it may be hedged": {unresumableChat, true, len(unresumableChat)}} {
		t.Run(name, func(t *testing.T) {
			one, two := newFakeVLLM(t, "one"), newFakeVLLM(t, "two")
			var cfg local.Config
			a := startAgent(t, func(x *local.Config) {
				if c.hedged {
					withHedging(x.Registry)(x)
				}
				cfg = *x
			}, one, two)
			one.setMode("endless")
			two.setMode("endless")
			resp, err := testClient.Post("http://"+a.Addr().String()+"/v1/chat/completions", "application/json", strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			if n := sumMetric(t, cfg, "spillway_local_request_body_bytes"); n != float64(c.held) {
				t.Errorf("%v bytes are held, want %d", n, c.held)
			}
			_ = resp.Body.Close()
			testkit.Eventually(t, "nothing is held", func() bool { return sumMetric(t, cfg, "spillway_local_request_body_bytes") == 0 })
		})
	}
}
