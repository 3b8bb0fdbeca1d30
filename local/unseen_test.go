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

// crowded is more than an answer can have on its way to a client who reads nothing: two connections' windows and buffers.
const crowded = 1 << 20

// speaker starts a worker in memory that answers chats with chat, and an agent over it.
func (l *lab) speaker(chat http.HandlerFunc) *local.Agent {
	l.Helper()
	at := l.host()
	ln, err := l.net.Listen(at)
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
	a := start(l.T, func(c *local.Config) {
		c.Listen, c.ScrapeInterval = l.host(), time.Second
		c.Network = view{l.net.Host(netip.MustParseAddrPort(c.Listen).Addr()), l}
		c.Workers = []discover.Worker{{Name: "w", URL: "http://" + at}}
	})
	l.within(5*time.Second, "the worker is ready", func() bool { return ready(a) == 1 })
	return a
}

// say writes events until so many bytes are written or the client has left.
func say(w http.ResponseWriter, bytes int) {
	w.Header().Set("Content-Type", "text/event-stream")
	event := "data: " + strings.Repeat("x", 1024) + "\n\n"
	for n := 0; n < bytes; n += len(event) {
		if _, err := io.WriteString(w, event); err != nil {
			return
		}
		w.(http.Flusher).Flush()
	}
}

// open asks for a stream and reads its first byte. Nobody reads on until the caller does.
func (l *lab) open(a *local.Agent, prompt string) io.ReadCloser {
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

// watchFor looks for so long whether the worker is ready all the time, and says after how long it was not.
func watchFor(a *local.Agent, span time.Duration) (ill time.Duration) {
	for begun := time.Now(); time.Since(begun) < span; time.Sleep(50 * time.Millisecond) {
		if ready(a) != 1 {
			return time.Since(begun)
		}
	}
	return 0
}

// away is longer than a worker may be silent, and shorter than a client may take to read.
const away = 14 * time.Second

// TestAClientThatReadsSlowlyIsNotItsWorkersSilence: the only client of a worker reads nothing for longer than a worker may
// be silent. The worker is not taken out, and the client has its whole answer once it reads.
func TestAClientThatReadsSlowlyIsNotItsWorkersSilence(t *testing.T) {
	inLab(t, func(l *lab) {
		a := l.speaker(func(w http.ResponseWriter, _ *http.Request) {
			say(w, crowded)
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		})
		for range 2 {
			body := l.open(a, "hi")
			if ill := watchFor(a, away); ill > 0 {
				l.Errorf("%v after its only client stopped reading the worker is %+v", ill, a.Status().Workers[0])
			}
			text, err := io.ReadAll(body)
			_ = body.Close()
			if err != nil || len(text) < crowded || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
				l.Errorf("the slow client has %d bytes (%v), which end with %q", len(text), err, text[max(0, len(text)-40):])
			}
			if ill := watchFor(a, 2*time.Second); ill > 0 {
				l.Errorf("after the answer the worker is %+v", a.Status().Workers[0])
			}
		}
	})
}

// TestSilenceCountsFromWhenTheClientReadsAgain: the worker fell silent while nobody looked. Once its client has read what
// there is, it has the time that any worker has, and no more.
func TestSilenceCountsFromWhenTheClientReadsAgain(t *testing.T) {
	inLab(t, func(l *lab) {
		const stall = 10 * time.Second // health.Config's default
		a := l.speaker(func(w http.ResponseWriter, r *http.Request) {
			say(w, crowded)
			<-r.Context().Done()
		})
		body := l.open(a, "hi")
		defer func() { _ = body.Close() }()
		if ill := watchFor(a, away); ill > 0 {
			l.Fatalf("ill after %v of a client that reads nothing", ill)
		}
		text := make(chan string)
		go func() {
			b, _ := io.ReadAll(body)
			text <- string(b)
		}()
		ill := watchFor(a, time.Minute)
		if ill < stall || ill > 3*stall {
			l.Errorf("its silence took it out after %v, want from %v to %v", ill, stall, 3*stall)
		}
		if b := <-text; !strings.Contains(b, "error") {
			l.Errorf("the stream ended with %q", b[max(0, len(b)-80):])
		}
	})
}

// TestASlowClientHidesNoStall: one client reads nothing, another waits for a worker that emits nothing.
func TestASlowClientHidesNoStall(t *testing.T) {
	inLab(t, func(l *lab) {
		a := l.speaker(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			if strings.Contains(string(b), "slow") {
				say(w, crowded)
			} else {
				say(w, 1)
			}
			<-r.Context().Done()
		})
		slow := l.open(a, "slow")
		defer func() { _ = slow.Close() }()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		waits := l.open(a, "quick")
		context.AfterFunc(ctx, func() { _ = waits.Close() })
		ended := make(chan time.Duration)
		begun := time.Now()
		go func() {
			_, _ = io.Copy(io.Discard, waits)
			ended <- time.Since(begun)
		}()
		if ill := watchFor(a, away); ill == 0 {
			l.Errorf("a slow client kept a stalled worker in for %v", away)
		}
		if took := <-ended; took > 2*away {
			l.Errorf("the other's stream ended after %v", took)
		}
	})
}
