package regional

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional/tenant"
	"github.com/spillway-lb/spillway/regional/zone"
)

// Lab is a gateway for a caller that brings its own time, such as the simulator: what a Gateway knows and decides, without
// its listeners, connections and goroutines. Its caller carries statements and directives, and tells what became of each
// request. A Lab has one caller at a time; the same calls with the same seed come to the same decisions.
type Lab struct{ g *Gateway }

// LabConfig says what a Lab is.
type LabConfig struct {
	// Name and Region are the gateway's path.
	Name, Region string
	// Spec in force until a directive says otherwise; it must list the region.
	Spec *spec.Spec
	// Seed of all chance in it.
	Seed uint64
	// Boot tells its lives apart, by which acknowledgements of another are known; 0 counts as 1.
	Boot uint64
	// Alone says that no global tier leases limits to it: it has its static shares from the beginning.
	Alone bool
}

// NewLab returns a gateway that has heard of nobody.
func NewLab(c LabConfig, now time.Time) *Lab {
	g := &Gateway{
		cfg: Config{Name: c.Name, Region: c.Region}, boot: max(c.Boot, 1), started: now,
		book: capacity.NewBook(capacity.Thresholds{}), ledger: zone.NewLedger(), leases: tenant.NewLeases(c.Alone, now), demand: newDemand(),
		sessions: zone.NewSessions(), trusts: zone.NewTrusts(), spills: zone.NewSpills(), waypoints: map[string][]waypoint{}, peerRTTs: newPeerRTTs(),
		suspects: map[string]time.Time{}, places: map[string]*place{}, rng: rand.New(rand.NewPCG(c.Seed, 0x9a7e)),
	}
	g.limiter = tenant.NewLimiter(g.leases)
	g.state.Store(newState(&uplink.Directive{}, c.Spec, c.Region, now))
	g.rebuild(now)
	return &Lab{g}
}

// Hear takes a statement of one of the region's locals.
func (l *Lab) Hear(s *capacity.Summary, now time.Time) {
	if l.g.heard(s, now) {
		l.g.rebuild(now)
	}
}

// Lose drops a local whose session has ended.
func (l *Lab) Lose(p capacity.Path, now time.Time) {
	l.g.book.Drop(p)
	l.g.rebuild(now)
}

// ViewEvery is how often Look is called: silence turns into loss by the clock.
const ViewEvery = viewInterval

// Look makes the view anew.
func (l *Lab) Look(now time.Time) { l.g.rebuild(now) }

// Suspect counts an endpoint as lost for a moment: a connection to it failed.
func (l *Lab) Suspect(endpoint string, now time.Time) {
	l.g.suspectAt(endpoint, now)
	l.g.rebuild(now)
}

// Obey takes a directive whose spec is s.
func (l *Lab) Obey(d *uplink.Directive, s *spec.Spec, now time.Time) {
	if d.Position().Compare(l.g.inForce()) < 0 {
		return
	}
	l.g.takeGrant(d.Grant, now)
	l.g.state.Store(newState(d, s, l.g.cfg.Region, now))
	l.g.creditPeers(d.Peers, now)
	l.g.rebuild(now)
}

// Measured takes a round trip to a peer region's gateway that a connection has shown.
func (l *Lab) Measured(region string, rtt time.Duration, now time.Time) {
	l.g.peerRTTs.add(region, rtt, now)
}

// Summary is what the gateway tells the global tier now.
func (l *Lab) Summary(now time.Time) capacity.Summary { return l.g.summary(now) }

// LabAsk is a request as a gateway reads it.
type LabAsk struct {
	Tenant, Model, Service, Cell string
	Client                       netip.Addr
	Class                        spec.Class
	// Prompt is the estimate in tokens, MaxTokens the output limit that it names; 0 for none.
	Prompt, MaxTokens int
	// Prefix are its beginnings as sketches name them; it is not kept. Session is a hash of the session that it names; 0 for none.
	Prefix  []uint64
	Session uint64
}

// LabRequest is a request at a gateway.
type LabRequest struct {
	q      request
	c      choice
	booked bool
}

// Take lets a client's request in, or refuses it for a limit of its tenant, a residency, or a model that nobody declared.
func (l *Lab) Take(a *LabAsk, now time.Time) (*LabRequest, *openai.Error) {
	g := l.g
	r, e := l.request(a, now)
	if e != nil {
		return nil, e
	}
	q := &r.q
	st := q.state.spec
	if !st.Permits(q.tenant, q.state.home) {
		return nil, openai.Residency(g.cfg.Region)
	}
	q.query.Spill, q.query.Margin = st.Routing.Spill == nil || *st.Routing.Spill, time.Duration(st.Routing.SpillMargin)
	q.hop.RetriesLeft = 1
	if denial, ok := g.take(q, http.Header{}, a.Cell, a.Client, now); !ok {
		return nil, denied(denial)
	}
	return r, nil
}

// Guest judges a request of another region that may take within here, as by its head. Nil: it is refused, not started.
func (l *Lab) Guest(a *LabAsk, within float64, now time.Time) *LabRequest {
	r, e := l.request(a, now)
	if e != nil {
		return nil
	}
	q := &r.q
	q.peer, q.hop.Hops, q.query.Hops = true, 1, 1
	q.hop.SpillWithin = time.Duration(within * float64(time.Second))
	if l.g.noRoom(q, outputLimit(q.model, a.MaxTokens), now) != "" {
		return nil
	}
	return r
}

func (l *Lab) request(a *LabAsk, now time.Time) (*LabRequest, *openai.Error) {
	st := l.g.state.Load()
	if !st.ready() {
		return nil, openai.NotReady()
	}
	r := &LabRequest{}
	q := &r.q
	q.arrived, q.admitted, q.state, q.service, q.client = now, now, st, a.Service, a.Client
	q.tenant, q.model = st.spec.Tenant(a.Tenant), st.spec.ModelNamed(a.Model)
	switch {
	case q.tenant == nil:
		return nil, openai.InvalidAPIKey()
	case q.model == nil:
		return nil, openai.ModelNotFound(a.Model, nil)
	}
	q.env.MaxTokens, q.env.N = a.MaxTokens, 1
	q.query = zone.Query{Model: a.Model, PromptTokens: a.Prompt, Class: a.Class, Residency: q.tenant.Residency, Regions: q.tenant.Regions}
	q.query.Prefix = append(q.marks.room[:0], a.Prefix[:min(len(a.Prefix), len(q.marks.room))]...)
	q.marks.session, q.query.Session = a.Session, a.Session
	q.hop = relay.Hop{Tenant: a.Tenant, Class: a.Class, Model: a.Model, PromptTokens: a.Prompt, MaxTokens: a.MaxTokens}
	return r, nil
}

// Choose picks a place for a request and writes it into the ledger. ok is false when nobody may take it.
func (l *Lab) Choose(r *LabRequest, now time.Time) (v zone.Verdict, ok bool) {
	r.c, ok = l.g.chooseAt(&r.q, now)
	if r.booked = ok; ok {
		l.g.settleIn(&r.q, &r.c.verdict) // as its attempt departs, which is at once
	}
	return r.c.verdict, ok
}

// Class is the request's, which may be less urgent than the one it came with: its tenant may be throttled.
func (r *LabRequest) Class() spec.Class { return r.q.query.Class }

// Output is the output that the gateway reckons with, in tokens.
func (r *LabRequest) Output() int { return r.q.query.MaxTokens }

// Ticket names the request in this gateway's ledger, for the local that it is sent to.
func (l *Lab) Ticket(r *LabRequest) relay.Ticket {
	return relay.Ticket{Parent: l.g.cfg.Name, Boot: l.g.boot, N: r.c.ticket}
}

// FirstByte books that the answer has begun.
func (l *Lab) FirstByte(r *LabRequest) { l.g.ledger.Prefilled(r.c.verdict.Path, r.c.ticket) }

// Leave books an attempt out of the ledger, with what it used. whole says that the answer came to its end.
func (l *Lab) Leave(r *LabRequest, u openai.Usage, whole bool) {
	if !r.booked {
		return
	}
	r.booked = false
	l.g.ledger.Finish(r.c.verdict.Path, r.c.ticket)
	r.q.tokens, r.q.usage = u.Prompt+u.Completion, u
	if whole {
		l.g.told(&r.q, &r.c, &u)
		l.g.demand.learn(r.q.query.Model, u.Completion)
	}
}

// Judged learns what became of a spill: refused, or let in. home says that the request goes back to where it could have
// been served in the first place, or to any other: Choose again.
func (l *Lab) Judged(r *LabRequest, refused bool, now time.Time) (home bool) {
	return l.g.judged(&r.q, r.c, relay.Result{Status: http.StatusServiceUnavailable, NotStarted: refused}, now)
}

// Again says whether a request that came to nothing at the chosen place may be tried once elsewhere, and takes that out of
// the budget.
func (l *Lab) Again(r *LabRequest, now time.Time) bool {
	q := &r.q
	if q.hop.RetriesLeft == 0 || !l.g.budget.Take(now) {
		return false
	}
	q.hop.RetriesLeft = 0
	q.shun(r.c.verdict.Endpoint)
	return true
}

// Retries are what is left to the request when it goes on.
func (r *LabRequest) Retries() int { return r.q.hop.RetriesLeft }

// Settle returns to the tenant's limits what the request did not use, once it is over.
func (l *Lab) Settle(r *LabRequest, now time.Time) {
	if r.q.leased {
		l.g.limiter.Settle(r.q.lease, r.q.cost(), now)
	}
}
