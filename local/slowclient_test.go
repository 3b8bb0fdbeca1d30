package local_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// moreThanBuffers is more than an answer can have on its way to a client who reads nothing: two connections' windows and buffers.
const moreThanBuffers = 1 << 20

// startChatZone starts a worker in memory that answers chats with chat, and an agent over it.
func (l *memCluster) startChatZone(chat http.HandlerFunc) *local.Agent {
	l.Helper()
	at := l.newHost()
	ln, err := l.network.Listen(at)
	if err != nil {
		l.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":[{"id":"m"}]}`) })
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "vllm:num_requests_running{engine=\"0\"} 1\n")
	})
	mux.HandleFunc("POST "+openai.PathChat, chat)
	s := &http.Server{Handler: mux}
	go func() {
		if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			l.Error(err)
		}
	}()
	l.Cleanup(func() { _ = s.Close() })
	a := startAgent(l.T, func(c *local.Config) {
		c.Listen, c.ScrapeInterval = l.newHost(), time.Second
		c.Network = memDialer{l.network.HostAt(netip.MustParseAddrPort(c.Listen).Addr()), l}
		c.Workers = []discover.Worker{{Name: "w", URL: "http://" + at}}
	})
	l.waitWithin(5*time.Second, "the worker is ready", func() bool { return countReady(a) == 1 })
	return a
}

// writeEvents writes events until so many bytes are written or the client has left.
func writeEvents(w http.ResponseWriter, bytes int) {
	w.Header().Set("Content-Type", "text/event-stream")
	event := "data: " + strings.Repeat("x", 1024) + "\n\n"
	for n := 0; n < bytes; n += len(event) {
		if _, err := io.WriteString(w, event); err != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}

// openStream asks for a stream and reads its first byte. The rest is read by the caller.
func (l *memCluster) openStream(a *local.Agent, prompt string) io.ReadCloser {
	l.Helper()
	// With a stop string it cannot be resumed: what is cut stays cut.
	body := fmt.Sprintf(`{"model":"m","stream":true,"stop":["."],"messages":[{"role":"user","content":%q}]}`, prompt)
	resp, err := l.client.Post("http://"+a.Addr().String()+openai.PathChat, "application/json", strings.NewReader(body))
	if err != nil {
		l.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 1)); err != nil || resp.StatusCode != http.StatusOK {
		l.Fatalf("status %d: %v", resp.StatusCode, err)
	}
	return resp.Body
}

// watchReady watches for span whether the worker stays ready. It returns after how long it was not, or 0.
func watchReady(a *local.Agent, span time.Duration) (unreadyAfter time.Duration) {
	for begun := time.Now(); time.Since(begun) < span; time.Sleep(50 * time.Millisecond) {
		if countReady(a) != 1 {
			return time.Since(begun)
		}
	}
	return 0
}

// clientPause is longer than a worker may be silent, and shorter than a client may take to read.
const clientPause = 14 * time.Second

// TestSlowClientDoesNotStallItsWorker: the only client of a worker reads nothing for longer than a worker may
// be silent. The worker is not taken out, and the client has its whole answer once it reads.
func TestSlowClientDoesNotStallItsWorker(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		a := l.startChatZone(func(w http.ResponseWriter, _ *http.Request) {
			writeEvents(w, moreThanBuffers)
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		})
		for range 2 {
			body := l.openStream(a, "hi")
			if after := watchReady(a, clientPause); after > 0 {
				l.Errorf("%v after its only client stopped reading the worker is %+v", after, a.Status().Workers[0])
			}
			text, err := io.ReadAll(body)
			_ = body.Close()
			if err != nil || len(text) < moreThanBuffers || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
				l.Errorf("the slow client has %d bytes (%v), which end with %q", len(text), err, text[max(0, len(text)-40):])
			}
			if after := watchReady(a, 2*time.Second); after > 0 {
				l.Errorf("after the answer the worker is %+v", a.Status().Workers[0])
			}
		}
	})
}

// TestStallClockRestartsWhenClientReadsAgain: the worker is silent while its client reads nothing. Once the client has
// read what there is, the worker has the usual stall time, and no more.
func TestStallClockRestartsWhenClientReadsAgain(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		const stall = 10 * time.Second // health.Config's default
		a := l.startChatZone(func(w http.ResponseWriter, r *http.Request) {
			writeEvents(w, moreThanBuffers)
			<-r.Context().Done()
		})
		body := l.openStream(a, "hi")
		defer func() { _ = body.Close() }()
		if after := watchReady(a, clientPause); after > 0 {
			l.Fatalf("not ready after %v of a client that reads nothing", after)
		}
		text := make(chan string)
		go func() {
			b, _ := io.ReadAll(body)
			text <- string(b)
		}()
		after := watchReady(a, time.Minute)
		if after < stall || after > 3*stall {
			l.Errorf("the silent worker is not ready after %v, want from %v to %v", after, stall, 3*stall)
		}
		if b := <-text; !strings.Contains(b, "error") {
			l.Errorf("the stream ended with %q", b[max(0, len(b)-80):])
		}
	})
}

// TestSlowClientDoesNotHideAStall: one client reads nothing, another waits for a worker that emits nothing.
func TestSlowClientDoesNotHideAStall(t *testing.T) {
	runInMemory(t, func(l *memCluster) {
		a := l.startChatZone(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if strings.Contains(string(b), "slow") {
				writeEvents(w, moreThanBuffers)
			} else {
				writeEvents(w, 1)
			}
			<-r.Context().Done()
		})
		slow := l.openStream(a, "slow")
		defer func() { _ = slow.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		waits := l.openStream(a, "quick")
		context.AfterFunc(ctx, func() { _ = waits.Close() })
		ended := make(chan time.Duration)
		begun := time.Now()
		go func() {
			_, _ = io.Copy(io.Discard, waits)
			ended <- time.Since(begun)
		}()
		if after := watchReady(a, clientPause); after == 0 {
			l.Errorf("a slow client kept a stalled worker in for %v", clientPause)
		}
		if took := <-ended; took > 2*clientPause {
			l.Errorf("the other's stream ended after %v", took)
		}
	})
}
