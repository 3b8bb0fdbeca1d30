package load

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config describes a run.
type Config struct {
	// Source provides the arrivals.
	Source ArrivalSource
	// Target provides the endpoints.
	Target Target
	// Clients send in turn. Default: one, from any address.
	Clients []Client
	// Models are chosen at random with equal probability.
	Models []string
	// Key is the API key; never logged. Empty sends none.
	Key string
	// Path of the requests: /v1/chat/completions (default) or /v1/completions.
	Path string
	// Stream requests one event per token; without it only whole answers are timed.
	Stream bool
	// Retries is how often a request may be sent elsewhere while no part of an answer was received. Default 1;
	// negative means never.
	Retries int
	// RetryFor is how long a request that must be sent elsewhere resolves the name for an untried address. Default
	// 3s.
	RetryFor time.Duration
	// Timeout bounds one request from when it was due to its last byte. Default 10m.
	Timeout time.Duration
	// Grace is how long answers may still arrive after the end of the run. Default: the timeout after the last
	// arrival, 5s when the run is interrupted.
	Grace time.Duration
	// MaxInFlight bounds concurrent requests; arrivals beyond it are counted as skipped. Default 4096.
	MaxInFlight int
	// Seed makes the choice of models repeatable.
	Seed uint64
	// TLS is used for https targets. nil means the system's roots.
	TLS *tls.Config
	// Dial replaces the network, for targets inside this process; nil: the network.
	Dial DialFunc
	// Headers are added to every request. Values never go to logs.
	Headers http.Header
	// OnOutcome is called with the outcome of each request, concurrently. nil: not called.
	OnOutcome func(RequestOutcome)
	// Recorder records requests and outcomes. nil records nothing.
	Recorder *Recorder
	// Log receives errors. nil discards them.
	Log *slog.Logger
}

// DialFunc opens a connection, as net.Dialer.DialContext does.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Generator plays a source against a target. It is for a single use.
type Generator struct {
	cfg      Config
	isChat   bool
	clients  []*loadClient
	slots    chan struct{}
	stats    *loadStats
	inFlight sync.WaitGroup
}

// NewGenerator checks the configuration.
func NewGenerator(c Config) (*Generator, error) {
	bases, err := c.Target.resolveBases()
	if err != nil {
		return nil, err
	}
	if err := c.applyDefaults(); err != nil {
		return nil, err
	}
	g := &Generator{
		cfg: c, isChat: strings.HasSuffix(c.Path, "/chat/completions"),
		slots: make(chan struct{}, c.MaxInFlight), stats: newLoadStats(),
	}
	for _, client := range c.Clients {
		one := &loadClient{config: client, baseURLs: bases, tls: c.TLS, dial: c.Dial, transports: map[string]*http.Transport{}}
		if c.Target.Service != "" {
			one.resolver = newResolver(c.Target.DNS, client.Source, c.Target.DNSTimeout, &g.stats.dns)
		}
		g.clients = append(g.clients, one)
	}
	return g, nil
}

func (c *Config) applyDefaults() error {
	switch {
	case c.Source == nil:
		return errors.New("load: a source of arrivals is needed")
	case len(c.Models) == 0:
		return errors.New("load: at least one model is needed")
	}
	if len(c.Clients) == 0 {
		c.Clients = []Client{{Name: "client"}}
	}
	if c.Path == "" {
		c.Path = "/v1/chat/completions"
	}
	if !strings.HasSuffix(c.Path, "/completions") {
		return fmt.Errorf("load: path %q: use /v1/chat/completions or /v1/completions", c.Path)
	}
	if c.Retries == 0 {
		c.Retries = 1
	}
	if c.RetryFor <= 0 {
		c.RetryFor = 3 * time.Second
	}
	if c.Timeout <= 0 {
		c.Timeout = 10 * time.Minute
	}
	if c.MaxInFlight <= 0 {
		c.MaxInFlight = 4096
	}
	if c.TLS == nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Run sends every arrival when it is due and returns when all answers have ended, or when ctx is done and the grace
// period is over. The error is the source's, if it could not be read to its end.
func (g *Generator) Run(ctx context.Context) error {
	flight, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	g.stats.setStarted(time.Now())
	err := g.sendArrivals(ctx, flight)
	g.awaitRequests(ctx, cut)
	g.stats.setEnded(time.Now())
	for _, c := range g.clients {
		c.closeIdle()
	}
	return err
}

// sendArrivals sends the source's arrivals.
func (g *Generator) sendArrivals(ctx, flight context.Context) error {
	start := time.Now()
	rng := rand.New(rand.NewPCG(g.cfg.Seed, 0x90de1))
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		a, err := g.cfg.Source.NextArrival()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading arrivals: %w", err)
		}
		due := start.Add(a.At)
		timer.Reset(max(time.Until(due), 0))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		g.startRequest(flight, g.clients[n%len(g.clients)], a, due, rng.IntN(len(g.cfg.Models)))
	}
	return nil
}

// startRequest sends one request without waiting for it.
func (g *Generator) startRequest(ctx context.Context, c *loadClient, a Arrival, due time.Time, model int) {
	select {
	case g.slots <- struct{}{}:
	default:
		g.stats.skipped.Add(1)
		return
	}
	number := g.stats.sent.Add(1)
	if r := g.cfg.Recorder; r != nil {
		r.RecordRequest(&Request{At: a.At, ID: number, Model: int32(model), Session: a.Session, Prompt: a.Prompt, Output: a.Output})
	}
	g.stats.lag.addDuration(time.Since(due))
	g.inFlight.Add(1)
	go func() {
		defer g.inFlight.Done()
		defer func() { <-g.slots }()
		g.sendRequest(ctx, c, &a, due, g.cfg.Models[model], number)
	}()
}

// awaitRequests waits for the requests in flight and cuts them when the grace period is over.
func (g *Generator) awaitRequests(ctx context.Context, cut context.CancelFunc) {
	landed := make(chan struct{})
	go func() {
		g.inFlight.Wait()
		close(landed)
	}()
	interrupted := ctx.Done()
	grace := time.NewTimer(positiveOr(g.cfg.Grace, g.cfg.Timeout))
	defer grace.Stop()
	for {
		select {
		case <-landed:
			return
		case <-interrupted:
			interrupted = nil
			grace.Reset(positiveOr(g.cfg.Grace, 5*time.Second))
		case <-grace.C:
			cut()
			<-landed
			return
		}
	}
}

func positiveOr(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
}

// CurrentReport returns the counts so far. It may be called during Run.
func (g *Generator) CurrentReport() *LoadReport {
	s := g.stats
	end := func(v outcomeKind) uint64 { return s.outcomes[v].Load() }
	r := &LoadReport{
		Elapsed: s.elapsedTime(time.Now()), Skipped: s.skipped.Load(),
		OK: end(outcomeOK), Refused: end(outcomeRefused), Cut: end(outcomeCut), Lost: end(outcomeLost), NoAddress: end(outcomeNoAddress), Abandoned: end(outcomeAbandoned),
		Retried: s.retried.Load(), Redirected: s.redirected.Load(), Lag: s.lag.summarizeLatency(),
		DNS: DNSReport{
			Queries: s.dns.queries.Load(), FailedQueries: s.dns.failedQueries.Load(),
			Resolutions: s.dns.lookups.Load(), FailedResolutions: s.dns.failedLookups.Load(), Cached: s.dns.cached.Load(),
		},
	}
	r.Sent = s.sent.Load() // after the outcomes: none of them can be of a request that is not counted here
	r.InFlight = r.Sent - r.OK - r.Refused - r.Cut - r.Lost - r.NoAddress - r.Abandoned
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range s.codes {
		r.Codes = append(r.Codes, CodeCount{Outcome: k.outcome.String(), Status: k.status, Code: k.code, Count: n})
	}
	slices.SortFunc(r.Codes, func(a, b CodeCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Status, b.Status), cmp.Compare(a.Code, b.Code))
	})
	for _, name := range slices.Sorted(maps.Keys(s.regions)) {
		if region := s.regions[name].makeReport(name); region.OK+region.Refused+region.Cut > 0 {
			r.Regions = append(r.Regions, region)
		}
	}
	return r
}
