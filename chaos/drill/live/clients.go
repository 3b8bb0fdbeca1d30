package live

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/drill"
	"github.com/spillway-lb/spillway/chaos/drill/virtual"
	"github.com/spillway-lb/spillway/chaos/load"
)

// Tenants and served models of a fleet, by the indexes of virtual.Arrivals.
var (
	tenantNames = []string{"acme", "nightly"}
	modelNames  = []string{"llama-3.1-8b", "qwen2.5-7b"}
)

// clientGroup is the requests of one region, tenant and model.
type clientGroup struct {
	region, tenant, model int32
	requests              []*load.Request
	next                  int
}

// NextArrival implements load.ArrivalSource.
func (g *clientGroup) NextArrival() (load.Arrival, error) {
	if g.next == len(g.requests) {
		return load.Arrival{}, io.EOF
	}
	q := g.requests[g.next]
	g.next++
	return load.Arrival{At: q.At, Prompt: q.Prompt, Output: q.Output, Session: q.Session}, nil
}

// clients send the load of a drill: the same arrivals as in the simulator.
type clients struct {
	file       *drill.DrillFile
	events     *eventQueue
	generators []*load.Generator
}

const (
	// requestTimeout bounds one request.
	requestTimeout = 60 * time.Second
	// clientRetries is how often a client sends a request elsewhere that had no byte, as in the simulator.
	clientRetries = 2
	// loadGrace is how long the run waits for answers after the last request.
	loadGrace = 15 * time.Second
)

func newClients(f *drill.DrillFile, seed uint64, t *target, events *eventQueue) (*clients, error) {
	arrivals, err := virtual.NewArrivals(f, seed)
	if err != nil {
		return nil, err
	}
	groups, order := map[[3]int32]*clientGroup{}, []*clientGroup{}
	for {
		q, err := arrivals.NextRequest()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		key := [3]int32{q.Region, q.Tenant, q.Model}
		g := groups[key]
		if g == nil {
			g = &clientGroup{region: q.Region, tenant: q.Tenant, model: q.Model}
			groups[key], order = g, append(order, g)
		}
		g.requests = append(g.requests, q)
	}
	c := &clients{file: f, events: events}
	for _, g := range order {
		one, err := c.newGenerator(g, t)
		if err != nil {
			return nil, err
		}
		c.generators = append(c.generators, one)
	}
	return c, nil
}

func (c *clients) newGenerator(g *clientGroup, t *target) (*load.Generator, error) {
	key, err := t.files.ReadTenantKey(tenantNames[g.tenant])
	if err != nil {
		return nil, err
	}
	var source netip.Addr
	if a, ok := t.files.ClientAddr(int(g.region)); ok {
		source = a
	}
	// Resolvers query their nearest global node first, as in the simulator: the first nodes are in the first regions.
	var servers []string
	for i := range t.globals {
		servers = append(servers, t.globals[(int(g.region)+i)%len(t.globals)].Addr["dns"].String())
	}
	port := int(t.files.NodesByRole("regional")[0].Addr["http"].Port())
	return load.NewGenerator(load.Config{
		Source: g, Target: load.Target{Service: "chat.spillway.test", DNS: servers, DNSTimeout: dnsTimeout, Port: port}, Clients: []load.Client{{Name: t.regions[g.region], Source: source}},
		Models: []string{modelNames[g.model]}, Key: key, Path: "/v1/completions", Stream: true, Retries: clientRetries, Timeout: requestTimeout, Grace: loadGrace,
		OnOutcome: func(o load.RequestOutcome) { c.recordOutcome(g, t, o) },
	})
}

// recordOutcome records a request when it has ended, with its due time.
func (c *clients) recordOutcome(g *clientGroup, t *target, o load.RequestOutcome) {
	if o.Number == 0 || o.Number > uint64(len(g.requests)) {
		return
	}
	q := g.requests[o.Number-1]
	due, end := c.events.since(o.Due), c.events.since(o.Done)
	e := drill.Event{At: max(end, due+1), Kind: drill.RequestEnded, Request: q.ID, Node: o.Route, Text: o.Kind, Number: uint64(o.Output)}
	if o.Kind == "nowhere" {
		e.Text, e.Code = "lost", "no address"
	}
	if o.Kind == "abandoned" {
		e.Text = "unfinished"
	}
	if o.Code != "" && o.Code != "-" {
		e.Code = o.Code
	}
	if !o.First.IsZero() {
		e.TTFT = o.First.Sub(o.Due).Seconds()
		if o.Output > 1 {
			e.TPOT = o.Done.Sub(o.First).Seconds() / float64(o.Output-1)
		}
	}
	slo := &c.file.SLO
	e.Good = o.Kind == "ok" && (slo.TTFT == 0 || e.TTFT <= slo.TTFT.Seconds()) && (slo.TPOT == 0 || e.TPOT <= slo.TPOT.Seconds())
	c.events.add(drill.Event{At: max(due, 1), Kind: drill.RequestDue, Request: q.ID, Target: t.regions[g.region], Text: tenantNames[g.tenant], Number: uint64(q.Output)}, e)
}

// start sends the load; the channel is closed when every request has ended.
func (c *clients) start(ctx context.Context) <-chan struct{} {
	var running sync.WaitGroup
	for _, g := range c.generators {
		running.Go(func() {
			if err := g.Run(ctx); err != nil {
				c.events.add(drill.Event{Kind: drill.NoteAdded, Text: "the load: " + err.Error()})
			}
		})
	}
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	return done
}
