package load

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Config describes a run.
type Config struct {
	// Source says which request leaves when.
	Source Source
	// Target says where to.
	Target Target
	// Clients take turns at asking. Default: one, from whichever address the system takes.
	Clients []Client
	// Models are asked for at random, each as often as the others.
	Models []string
	// Key is the API key; never logged. Empty sends none.
	Key string
	// Path of the requests: /v1/chat/completions (default) or /v1/completions.
	Path string
	// Stream asks for one event per token; without it only whole answers are timed.
	Stream bool
	// Retries is how often a request may be sent elsewhere while nothing of an answer was received. Default 1;
	// negative means never.
	Retries int
	// RetryFor is how long a request that has to go elsewhere asks DNS again for an address it has not tried. Default 3s.
	RetryFor time.Duration
	// Timeout bounds one request from when it was due to its last byte. Default 10m.
	Timeout time.Duration
	// Grace is how long answers may still come after the end of the run. Default: the timeout after the last arrival,
	// 5s when the run is interrupted.
	Grace time.Duration
	// MaxInFlight bounds requests at a time; what is due beyond it is counted as skipped. Default 4096.
	MaxInFlight int
	// Seed makes the choice of models repeatable.
	Seed uint64
	// TLS is used for https targets. Nil means the system's roots.
	TLS *tls.Config
	// Dial stands in for the network, for targets inside this process; nil: the network.
	Dial Dial
	// Headers are added to every request. Values never go to logs.
	Headers http.Header
	// OnOutcome is told what came of each request, by many goroutines at once. Nil tells nobody.
	OnOutcome func(Outcome)
	// Record is told what is asked and what comes of it. Nil records nothing.
	Record *Recorder
	// Log receives what goes wrong. Nil discards.
	Log *slog.Logger
}

// Dial opens a connection, as net.Dialer.DialContext does.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Generator plays a source against a target. It is single use.
type Generator struct {
	cfg     Config
	chat    bool
	callers []*caller
	slots   chan struct{}
	stats   *stats
	flying  sync.WaitGroup
}

// New checks the configuration.
func New(c Config) (*Generator, error) {
	bases, err := c.Target.check()
	if err != nil {
		return nil, err
	}
	if err := c.complete(); err != nil {
		return nil, err
	}
	g := &Generator{
		cfg: c, chat: strings.HasSuffix(c.Path, "/chat/completions"),
		slots: make(chan struct{}, c.MaxInFlight), stats: newStats(),
	}
	for _, client := range c.Clients {
		one := &caller{client: client, bases: bases, tls: c.TLS, dial: c.Dial, transports: map[string]*http.Transport{}}
		if c.Target.Service != "" {
			one.resolver = newResolver(c.Target.DNS, client.Source, c.Target.DNSTimeout, &g.stats.dns)
		}
		g.callers = append(g.callers, one)
	}
	return g, nil
}

func (c *Config) complete() error {
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

// Run sends every arrival when it is due and returns once all answers are in, or when ctx is done and the grace is
// over. The error is the source's, if it could not be read to its end.
func (g *Generator) Run(ctx context.Context) error {
	flight, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	g.stats.begin(time.Now())
	err := g.play(ctx, flight)
	g.land(ctx, cut)
	g.stats.end(time.Now())
	for _, c := range g.callers {
		c.close()
	}
	return err
}

// play sends the source's arrivals.
func (g *Generator) play(ctx, flight context.Context) error {
	start := time.Now()
	rng := rand.New(rand.NewPCG(g.cfg.Seed, 0x90de1))
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		a, err := g.cfg.Source.Next()
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
		g.launch(flight, g.callers[n%len(g.callers)], a, due, rng.IntN(len(g.cfg.Models)))
	}
	return nil
}

// launch sends one request without waiting for it.
func (g *Generator) launch(ctx context.Context, c *caller, a Arrival, due time.Time, model int) {
	select {
	case g.slots <- struct{}{}:
	default:
		g.stats.skipped.Add(1)
		return
	}
	number := g.stats.sent.Add(1)
	if r := g.cfg.Record; r != nil {
		r.Asked(&Request{At: a.At, ID: number, Model: int32(model), Session: a.Session, Prompt: a.Prompt, Output: a.Output})
	}
	g.stats.lag.add(time.Since(due))
	g.flying.Add(1)
	go func() {
		defer g.flying.Done()
		defer func() { <-g.slots }()
		g.one(ctx, c, &a, due, g.cfg.Models[model], number)
	}()
}

// land waits for what is still in flight and cuts it when the grace is over.
func (g *Generator) land(ctx context.Context, cut context.CancelFunc) {
	landed := make(chan struct{})
	go func() {
		g.flying.Wait()
		close(landed)
	}()
	interrupted := ctx.Done()
	grace := time.NewTimer(orElse(g.cfg.Grace, g.cfg.Timeout))
	defer grace.Stop()
	for {
		select {
		case <-landed:
			return
		case <-interrupted:
			interrupted = nil
			grace.Reset(orElse(g.cfg.Grace, 5*time.Second))
		case <-grace.C:
			cut()
			<-landed
			return
		}
	}
}

func orElse(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
}
