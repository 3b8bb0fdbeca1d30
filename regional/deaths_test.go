package regional_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/regional"
)

const (
	// unfollowed requests a stream that cannot be resumed.
	unfollowed = `{"model":"small","messages":[{"role":"user","content":"poison"}],"max_tokens":16,"stream":true,"stop":["x"]}`
	// poisonous requests a response that is not a stream.
	poisonous = `{"model":"small","messages":[{"role":"user","content":"poison"}],"max_tokens":16}`
	// severed requests a response that is not a stream and during which the worker dies.
	severed = `{"model":"small","messages":[{"role":"user","content":"poison cut"}],"max_tokens":16}`
)

// startMortal starts a worker that dies on a poisonous request: with an error that reports it, or after the first
// event of a stream.
func startMortal(t *testing.T, deaths *atomic.Int64) config.WorkerEntry {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.URL.Path == "/v1/models":
			_, _ = io.WriteString(w, `{"data":[{"id":"small","owned_by":"sglang"}]}`)
		case r.Method == http.MethodGet:
		case !bytes.Contains(body, []byte("poison")):
			_, _ = io.WriteString(w, `{"choices":[]}`)
		case bytes.Contains(body, []byte(`"stream":true`)):
			deaths.Add(1)
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"id":"a","choices":[{"index":0,"delta":{"content":"one "},"finish_reason":null}]}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case bytes.Contains(body, []byte("cut")):
			deaths.Add(1)
			_, _ = io.WriteString(w, `{"choices":[`+strings.Repeat(" ", 64<<10))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		default:
			deaths.Add(1)
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"error":{"message":"CUDA error: device lost`+strings.Repeat(" ", 12<<10)+`"}}`) // more than any buffer between worker and client holds
		}
	}))
	t.Cleanup(s.Close)
	return config.WorkerEntry{Name: "w1", URL: s.URL}
}

// askFailing sends a request whose response may end early.
func askFailing(t *testing.T, w *testWorld, g *regional.Gateway, body string) {
	t.Helper()
	resp, err := w.sendCall(t.Context(), g, clientCall{key: "key-acme", body: body})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
}

// TestPeersTellOfDeathsThatOnlyTheEndShows: a worker dies under a spilled request after the head of the response
// was sent. The region that spilled the request counts that death, so the next attempt, in its own zone, is the
// last.
func TestPeersTellOfDeathsThatOnlyTheEndShows(t *testing.T) {
	for name, body := range map[string]string{"last words": poisonous, "stream": unfollowed, "severed": severed} {
		t.Run(name, func(t *testing.T) {
			r := newPeerRegions(t, nil)
			var away, home atomic.Int64
			r.startZone(r.iad, "iad", startMortal(t, &away))
			r.waitForWorkerTotal("iad", 1)
			r.testWorld.waitUntilServed(r.iad, "small")
			askFailing(t, r.testWorld, r.fra, body)
			if away.Load() != 1 {
				t.Fatalf("%d workers died in the peer, want 1", away.Load())
			}
			r.startZone(r.fra, "fra", startMortal(t, &home))
			testkit.Eventually(t, "the worker at home is ready", func() bool { return r.fra.CountReadyWorkers("small") == 1 })
			askFailing(t, r.testWorld, r.fra, body)
			if home.Load() != 1 {
				t.Fatalf("%d workers died at home, want 1", home.Load())
			}
			resp, text := r.getAnswer(r.fra, clientCall{key: "key-acme", body: body})
			if resp.StatusCode != http.StatusUnprocessableEntity || errorCode(text) != openai.CodeKillsWorkers {
				t.Errorf("after two deaths it is answered %d %s", resp.StatusCode, text)
			}
			if n := away.Load() + home.Load(); n != 2 {
				t.Errorf("%d workers died under one request, want 2", n)
			}
		})
	}
}

// TestPeersDoNotTellOfDeathsThatARequestHasSurvived: when a peer serves a suspect to its end, both regions delete
// it.
func TestPeersDoNotTellOfDeathsThatARequestHasSurvived(t *testing.T) {
	r := newPeerRegions(t, nil)
	var asked atomic.Int64
	deaths := make(chan int, 3)
	r.startLocal(r.iad, "iad", "iad-a", func(w http.ResponseWriter, q *http.Request) {
		hop, _ := forward.ParseHop(q.Header)
		deaths <- hop.Deaths
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Trailer", forward.HeaderDeaths)
		_, _ = fmt.Fprint(w, `data: {"choices":[{"index":0,"delta":{"content":"one"},"finish_reason":null}]}`+"\n\n")
		if asked.Add(1) == 1 {
			w.Header().Set(forward.HeaderDeaths, "1")
			return
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	}, roomyModel("small"))
	r.waitForWorkerTotal("iad", 2)
	r.testWorld.waitUntilServed(r.iad, "small")
	for i, want := range []int{0, 1, 0} {
		r.getAnswer(r.fra, clientCall{key: "key-acme", body: unfollowed})
		if got := <-deaths; got != want {
			t.Errorf("attempt %d: the zone is told of %d deaths, want %d", i, got, want)
		}
	}
}

// When a worker dies during a bidirectional call while its client sends nothing, the client receives the error at
// once.
func TestIdleStreamEndsWhenWorkerDies(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		for _, begun := range []bool{false, true} {
			t.Run(fmt.Sprintf("encrypted %v, begun %v", encrypted, begun), func(t *testing.T) {
				w := newWorld(t)
				creds := insecure.NewCredentials()
				g := w.startGateway("fra", func(c *regional.Config) {
					if encrypted {
						files := w.issuePublicCert("front")
						c.HTTPCert, c.HTTPKey = files.Cert, files.Key
						creds = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
					}
				})
				callee := newGRPCWorker(t)
				w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: startSimWorker(t), GRPC: "http://" + callee.addr, Weight: 1})
				conn := w.dialGRPC(g, creds)
				var out []byte
				waitForZoneSpec(t, conn)
				method := map[bool]string{false: "Hang", true: "Greet"}[begun]
				for len(callee.metadata) > 0 {
					<-callee.metadata
				}
				s, err := conn.NewStream(withAPIKey(t.Context(), "x-model", "small"), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/any.Service/"+method)
				requireNoError(t, err)
				if begun {
					in := []byte("one")
					requireNoError(t, s.SendMsg(&in))
					requireNoError(t, s.RecvMsg(&out))
				} else {
					<-callee.metadata
				}
				callee.stop()
				if err := s.RecvMsg(&out); status.Code(err) != codes.Unavailable {
					t.Error(err)
				}
			})
		}
	}
}

// The same holds when the zone's instance dies before it has sent a byte.
func TestIdleStreamEndsWhenZoneDies(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	callee := newGRPCWorker(t)
	a := w.zoneOf(g, config.WorkerEntry{Name: "w1", URL: startSimWorker(t), GRPC: "http://" + callee.addr, Weight: 1})
	conn := w.dialGRPC(g, insecure.NewCredentials())
	var out []byte
	waitForZoneSpec(t, conn)
	for len(callee.metadata) > 0 {
		<-callee.metadata
	}
	s, err := conn.NewStream(withAPIKey(t.Context(), "x-model", "small"), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/any.Service/Hang")
	requireNoError(t, err)
	<-callee.metadata
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_ = a.Stop(now) // its work is cut short
	if err := s.RecvMsg(&out); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}
