package local_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// failingWorkers are workers that serve model m, and whose answers to clients and to the zone itself fail by choice.
type failingWorkers struct {
	t              *testing.T
	log            testkit.LogBuffer
	clientStatus   [6]atomic.Int64 // by worker: the status of answers to clients; 0: by the request
	ownStatus      [6]atomic.Int64 // by worker: the status of answers to the zone's own requests; 0: 200
	ownRequests    [6]atomic.Int64 // by worker: the zone's own requests
	clientRequests [6]atomic.Int64 // by worker: clients' requests
}

// startZone runs a zone of n of them. A client's request that holds "mistake" is answered 500, one with "busy" 503.
func (e *failingWorkers) startZone(n int, change func(*local.Config)) *local.Agent {
	e.t.Helper()
	e.t.Cleanup(func() { e.log.PrintIfFailed(e.t) })
	a := startAgent(e.t, func(c *local.Config) {
		c.Log = slog.New(slog.NewTextHandler(&e.log, nil))
		for i := range n {
			s := httptest.NewServer(e.newHandler(i))
			e.t.Cleanup(s.Close)
			c.Workers = append(c.Workers, discover.Worker{Name: fmt.Sprint("w", i+1), URL: s.URL})
		}
		if change != nil {
			change(c)
		}
	})
	testkit.Eventually(e.t, "every worker ready", func() bool { return countReady(a) == n })
	for i := range n {
		e.ownRequests[i].Store(0) // the warm-up
	}
	return a
}

// wasEjectedBy reports whether the first worker was ejected by a failure of the zone's own request. The log keeps it: the
// status of the worker shows it for a second, until the next warm-up fails.
func (e *failingWorkers) wasEjectedBy(cause string) bool {
	return len(e.log.Lines("worker=w1", "to=sick", "ejected: errors: "+cause)) > 0
}

func (e *failingWorkers) newHandler(i int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		own := bytes.Contains(body, []byte(`"Hello"`))
		status := http.StatusOK
		switch {
		case r.URL.Path == "/v1/models":
			_, _ = io.WriteString(w, `{"data":[{"id":"m","owned_by":"sglang"}]}`)
			return
		case r.Method == http.MethodGet:
		case own:
			e.ownRequests[i].Add(1)
			status = int(e.ownStatus[i].Load())
		default:
			e.clientRequests[i].Add(1)
			switch status = int(e.clientStatus[i].Load()); {
			case status > 0:
			case bytes.Contains(body, []byte("mistake")):
				status = http.StatusInternalServerError
			case bytes.Contains(body, []byte("busy")):
				status = http.StatusServiceUnavailable
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if status > 0 {
			w.WriteHeader(status)
		}
		_, _ = io.WriteString(w, `{"choices":[],"error":{"message":"failed","code":500}}`)
	}
}

func (e *failingWorkers) countEjections() int {
	return len(e.log.Lines("worker changed state", "to=sick"))
}

func chatBodyWith(text string, i int) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%s %d"}]}`, text, i)
}

// TestOneTenantsErrorsEjectNoWorker: 500s, or refusals for load, that one tenant's requests bring about. The workers answer the
// zone's own request and stay, by a run of errors and by the error rate alike.
func TestOneTenantsErrorsEjectNoWorker(t *testing.T) {
	t.Run("every worker", func(t *testing.T) {
		e := &failingWorkers{t: t}
		a := e.startZone(4, nil)
		for i := range 60 {
			if resp, _ := postChat(t, a, chatBodyWith("mistake", i)); resp.StatusCode != http.StatusInternalServerError {
				t.Fatalf("a client is answered %d", resp.StatusCode)
			}
		}
		testkit.Eventually(t, "a verification has passed", func() bool { return len(e.log.Lines("it stays")) > 0 })
		if n := countReady(a); n != 4 || e.countEjections() != 0 {
			t.Errorf("%d of 4 workers ready after %d ejections", n, e.countEjections())
		}
		for i := range 4 {
			if n := e.ownRequests[i].Load(); n > 2 {
				t.Errorf("worker %d was verified %d times", i+1, n)
			}
		}
	})
	for name, status := range map[string]int64{"errors of one worker": http.StatusInternalServerError, "refusals of one worker": http.StatusServiceUnavailable} {
		t.Run(name, func(t *testing.T) {
			e := &failingWorkers{t: t}
			a := e.startZone(4, func(c *local.Config) { c.Health.Samples, c.Health.Failures = 2, 1000 })
			e.clientStatus[0].Store(status)
			i := 0
			testkit.Eventually(t, "the worker has passed a verification", func() bool {
				postChat(t, a, chatBodyWith("hi", i))
				i++
				return len(e.log.Lines("it stays", "worker=w1")) > 0
			})
			if n := countReady(a); n != 4 || e.countEjections() != 0 || e.ownRequests[0].Load() == 0 {
				t.Errorf("%d of 4 workers ready after %d ejections", n, e.countEjections())
			}
		})
	}
}

// TestBrokenWorkerIsEjectedWithOneTenant: a worker that answers all requests with 500 is ejected in an installation without
// tenants.
func TestBrokenWorkerIsEjectedWithOneTenant(t *testing.T) {
	e := &failingWorkers{t: t}
	a := e.startZone(2, nil)
	e.clientStatus[0].Store(http.StatusInternalServerError)
	e.ownStatus[0].Store(http.StatusInternalServerError)
	i := 0
	testkit.Eventually(t, "it is out", func() bool {
		postChat(t, a, chatBodyWith("hi", i))
		i++
		return e.wasEjectedBy("POST /v1/completions: status 500")
	})
	if n := e.clientRequests[0].Load(); n > 100 {
		t.Errorf("%d requests of clients failed on it", n)
	}
	if countReady(a) != 1 || len(e.log.Lines("level=WARN", "it is ejected", "worker=w1")) != 1 {
		t.Errorf("%d of 2 workers ready: %s", countReady(a), e.log.String())
	}
}

// TestBrokenEmbeddingWorkerIsEjectedWithOneTenant: the request of the zone is one for embeddings; an engine that makes none
// refuses a completion all the same.
func TestBrokenEmbeddingWorkerIsEjectedWithOneTenant(t *testing.T) {
	e := &failingWorkers{t: t}
	a := e.startZone(2, nil)
	e.clientStatus[0].Store(http.StatusInternalServerError)
	ask := func(i int) {
		resp, err := testClient.Post("http://"+a.Addr().String()+"/v1/embeddings", "application/json", strings.NewReader(fmt.Sprintf(`{"model":"m","input":"hi %d"}`, i)))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	i := 0
	testkit.Eventually(t, "it passes as long as it answers such requests", func() bool { ask(i); i++; return len(e.log.Lines("it stays", "worker=w1")) > 0 })
	e.ownStatus[0].Store(http.StatusInternalServerError)
	testkit.Eventually(t, "it is out", func() bool {
		ask(i)
		i++
		return e.wasEjectedBy("POST /v1/embeddings: status 500")
	})
}

// TestErrorsOfTwoTenantsEjectWithoutVerification: the worker answers the zone's own requests, and those of two tenants not.
func TestErrorsOfTwoTenantsEjectWithoutVerification(t *testing.T) {
	e := &failingWorkers{t: t}
	p := newGatewayHarness(t)
	a := e.startZone(2, func(c *local.Config) {
		p.joinGateway(c)
		c.Health.Backoff = 1 << 40 // about 18 minutes
	})
	e.clientStatus[0].Store(http.StatusInternalServerError)
	send := func(tenant string, i int) {
		if _, _, err := p.postFromGateway(p.gateway, a, forward.Hop{Tenant: tenant}, chatBodyWith("hi", i)); err != nil {
			t.Fatal(err)
		}
	}
	i := 0
	testkit.Eventually(t, "the worker has failed often for one tenant", func() bool {
		send("ann", i)
		i++
		return e.clientRequests[0].Load() >= 12
	})
	testkit.Eventually(t, "it has passed a verification", func() bool { return len(e.log.Lines("it stays", "worker=w1")) > 0 })
	if e.countEjections() != 0 {
		t.Fatalf("it was ejected for one tenant: %s", e.log.String())
	}
	asked := e.ownRequests[0].Load()
	testkit.Eventually(t, "it is out once two tenants fail", func() bool {
		send("ann", i)
		send("bob", i)
		i++
		return strings.HasPrefix(workerStatus(a, "w1").Reason, "ejected: errors: a request was answered with status 500")
	})
	if n := e.ownRequests[0].Load(); n != asked && len(e.log.Lines("it is ejected")) != 0 {
		t.Errorf("it was verified %d times more", n-asked)
	}
	e.clientStatus[1].Store(http.StatusInternalServerError)
	for range 20 {
		send("ann", i)
		send("bob", i)
		if i++; countReady(a) != 1 {
			t.Fatalf("%d of 2 workers ready, and max_ejected is a half", countReady(a))
		}
	}
}

// TestVerificationsRespectMaxEjected: all workers fail all requests, and half of them stay.
func TestVerificationsRespectMaxEjected(t *testing.T) {
	e := &failingWorkers{t: t}
	a := e.startZone(4, func(c *local.Config) { c.Health.Backoff = 1 << 40 }) // about 18 minutes
	for i := range 4 {
		e.clientStatus[i].Store(http.StatusInternalServerError)
		e.ownStatus[i].Store(http.StatusInternalServerError)
	}
	i := 0
	testkit.Eventually(t, "two are out", func() bool { postChat(t, a, chatBodyWith("hi", i)); i++; return countReady(a) == 2 })
	for ; i < 200; i++ {
		if postChat(t, a, chatBodyWith("hi", i)); countReady(a) != 2 {
			t.Fatalf("%d of 4 workers ready", countReady(a))
		}
	}
}
