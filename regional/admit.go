package regional

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/tenant"
	"github.com/spillway-lb/spillway/regional/zone"
)

// admit takes a request through everything that can refuse it before a place is chosen, the cheapest first.
func (g *Gateway) admit(w http.ResponseWriter, r *http.Request, q *request) *openai.Error {
	q.state = g.state.Load()
	if !q.state.ready() {
		return openai.NotReady()
	}
	var e *openai.Error
	if q.tenant, q.path, q.client, e = g.authenticate(r, q.state); e != nil {
		return e
	}
	if !q.state.spec.Permits(q.tenant, q.state.home) {
		return openai.Residency(g.cfg.Region)
	}
	svc, e := q.state.called(r.Host)
	if e != nil {
		return e
	}
	if e = g.enterEarly(w, q); e != nil {
		return e
	}
	if q.raw, e = g.bodyBounds(q, deadlineOf(r.Header)).Read(w, r); e != nil {
		return e
	}
	if e = q.scan(r); e != nil {
		return e
	}
	if name := relay.TakeRewrite(r.Header); name != "" && !q.shape.ModelInPath() {
		q.env.Model = name
	}
	if svc != nil {
		q.service = svc.Name
	}
	if e = g.resolve(r, q, svc); e != nil {
		return e
	}
	if e = q.read(r.Header); e != nil {
		return e
	}
	g.recognise(q, r.Header)
	return g.enter(w, q, q.client)
}

// authenticate says who is calling: by a key, by a token, or by the ticket that a redirect carried.
func (g *Gateway) authenticate(r *http.Request, st *state) (t *spec.Tenant, path string, client netip.Addr, e *openai.Error) {
	path, redirect := withoutTicket(r.URL)
	if st.keyless != nil {
		return st.keyless, path, g.client(r), nil
	}
	if t, ok := st.spec.Authenticate(apiKey(r.Header), time.Now()); ok {
		return t, path, g.client(r), nil
	}
	now, from := time.Now(), g.client(r)
	if g.refusals.full(from, now) && (redirect != "" || !g.tokens.Known(apiKey(r.Header))) {
		return nil, "", from, openai.ClientRefusals()
	}
	t, e = g.token(st, r, now)
	switch {
	case t != nil:
		return t, path, from, nil
	case e != nil:
		g.refusals.add(from, now)
	}
	if redirect != "" {
		if t, client := g.ticketed(st, redirect, r.Host, now); t != nil {
			if !client.IsValid() {
				client = from
			}
			return t, path, client, nil
		}
		g.refusals.add(from, now)
		return nil, "", client, badTicket()
	}
	if e == nil {
		e = openai.InvalidAPIKey()
	}
	return nil, "", client, e
}

// scan reads the envelope. The tensors of an inference are the engine's own business.
func (q *request) scan(r *http.Request) *openai.Error {
	q.infer = !q.shape.Generates() && q.shape != openai.ShapeEmbeddings
	if q.shape.ModelInPath() {
		q.inferPath = r.URL.EscapedPath()
		_, q.args, _ = strings.Cut(q.path, "?")
	}
	return relay.ReadEnvelope(q.shape, r, q.raw, &q.env)
}

// promptTokens estimates what the request costs to read. Tensors are taken for text of their length.
func (q *request) promptTokens() int {
	if q.kind != relay.Usual {
		return max(1, int(float64(q.source.Kept())/q.model.BytesPerToken))
	}
	if q.shape == openai.ShapeInfer {
		return max(1, int(float64(len(q.raw))/q.model.BytesPerToken))
	}
	return q.env.Tokens(q.model.BytesPerToken)
}

// read fills the query from the envelope and the caller's headers.
func (q *request) read(h http.Header) *openai.Error {
	prompt := q.promptTokens()
	if asked, over := q.env.Exceeds(q.model.OutputLimit); over && !q.infer {
		return openai.OutputTooLong(asked, q.model.OutputLimit)
	}
	if limit := q.model.MaxContext; limit > 0 && !q.infer && zone.TooLongFrom(prompt)+q.env.MaxTokens > limit {
		return openai.ContextTooLong(prompt+q.env.MaxTokens, limit)
	}
	class, deadline, e := wishes(h, q.tenant.Class, q.state.spec)
	if e != nil {
		return e
	}
	q.query = zone.Query{
		Model: q.model.Name, PromptTokens: prompt, Asks: len(q.raw) >= askFrom, Class: class, Residency: q.tenant.Residency, Regions: q.tenant.Regions,
		Spill: q.state.spec.Routing.Spill == nil || *q.state.spec.Routing.Spill, Margin: time.Duration(q.state.spec.Routing.SpillMargin),
	}
	q.hop.Flow, q.hop.TellEndpoint = relay.Flow(h, q.tenant), q.tenant.Trusted
	q.hop.Tenant, q.hop.Class, q.hop.Model, q.hop.Deadline = q.tenant.Name, class, q.model.Name, deadline
	q.hop.PromptTokens, q.hop.MaxTokens = prompt, q.env.MaxTokens
	q.hop.AskUsage = q.state.spec.Routing.AsksUsage() && q.env.MayAskUsage() // what path it is for, the local tier knows
	return nil
}

// wishes reads what a caller may ask for: a class that is no more urgent than its own, and a deadline. When its
// first token should come is read here for its mistakes, and by the local tier for its order.
func wishes(h http.Header, own spec.Class, s *spec.Spec) (class spec.Class, deadline time.Duration, e *openai.Error) {
	class = own
	c, named, err := relay.NamedClass(h, s)
	if err != nil {
		return class, 0, badHeader(relay.HeaderClientClass, err.Error())
	}
	if named {
		class = max(own, c)
	}
	t, e := relay.ReadTimes(h)
	return class, t.Deadline, e
}

func badHeader(name, message string) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: openai.CodeInvalidValue, Param: name,
		Message: name + ": " + message, NoRetry: true,
	}
}

// bodyBounds are those of a request's body; deadline is the caller's own, from the request's arrival. 0: none.
func (g *Gateway) bodyBounds(q *request, deadline time.Duration) relay.BodyBounds {
	q.charge = g.bodies.Charge(q.tenant.Name)
	b := relay.BodyBounds{Limit: q.state.spec.Routing.MaxBody, Within: g.cfg.BodyTimeout, Tier: "regional", Charge: &q.charge}
	if deadline > 0 {
		b.By = q.arrived.Add(deadline)
	}
	return b
}

// deadlineOf is the caller's own deadline, 0 when it names none. What cannot be read is refused once the body is there.
func deadlineOf(h http.Header) time.Duration {
	t, e := relay.ReadTimes(h)
	if e != nil {
		return 0
	}
	return t.Deadline
}

// enterEarly takes a place out of the tenant's limit of requests at a time before the body is read: a client that sends
// slowly holds one of its own.
func (g *Gateway) enterEarly(w http.ResponseWriter, q *request) *openai.Error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	terms := g.termsOf(q.state, q.tenant)
	denial, ok := g.limiter.Enter(q.tenant.Name, terms, now)
	if !ok {
		limitHeaders(w.Header(), q.tenant.Limits, g.limiter.Left(q.tenant.Name, terms, now))
		return denied(denial)
	}
	q.entered = true
	return nil
}

// enter takes the request out of the tenant's limits and counts it as demand. What is refused for want of capacity was
// demanded all the same; what is over a tenant's own limit was not.
func (g *Gateway) enter(w http.ResponseWriter, q *request, client netip.Addr) *openai.Error {
	now := time.Now()
	denial, ok := g.take(q, w.Header(), g.cell(client), client, now)
	if !ok {
		return denied(denial)
	}
	return nil
}

// take is enter for a client of a cell.
func (g *Gateway) take(q *request, head http.Header, cell string, client netip.Addr, now time.Time) (tenant.Denial, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !q.infer {
		q.query.MaxTokens = g.demand.expected(q.model.Name, outputLimit(q.model, q.env.MaxTokens)) * q.env.N
		q.query.Choices = q.env.N
	}
	terms := g.termsOf(q.state, q.tenant)
	admit := g.limiter.Admit
	if q.entered {
		admit = g.limiter.AdmitEntered
	}
	lease, denial, ok := admit(q.tenant.Name, terms, q.estimate(), now)
	limitHeaders(head, q.tenant.Limits, g.limiter.Left(q.tenant.Name, terms, now))
	if !ok {
		return denial, false
	}
	if lease.Throttled {
		q.query.Class, q.hop.Class = spec.Batch, spec.Batch
	}
	q.lease, q.leased, q.admitted = lease, true, now
	g.budget.Request(q.state.spec.Routing.RetryBudget)
	work := float64(q.query.PromptTokens) + outputCost(g.view.Load(), q.model.Name)*float64(q.query.MaxTokens)
	g.demand.offer(flow{service: q.service, model: q.model.Name, cell: cell}, work, now)
	g.demand.heavy.offer(q.service, cell, client, work, now)
	return denial, true
}

// cell is the name of where the client is, or empty when that is not known.
func (g *Gateway) cell(client netip.Addr) string {
	if g.cfg.Atlas == nil || !client.IsValid() {
		return ""
	}
	fix := g.cfg.Atlas.Locate(client)
	if fix.Cell == geo.NoCell {
		return ""
	}
	return geo.CellName(fix.Cell)
}

// settle returns what the request did not use.
func (g *Gateway) settle(q *request) {
	q.charge.Release()
	if !q.leased {
		g.leaveEarly(q)
		return
	}
	g.mu.Lock()
	g.limiter.Settle(q.lease, q.cost(), time.Now())
	g.mu.Unlock()
	g.bill(q)
}

// leaveEarly returns the place of a request that was refused after enterEarly.
func (g *Gateway) leaveEarly(q *request) {
	if !q.entered {
		return
	}
	g.mu.Lock()
	g.limiter.Leave(q.tenant.Name)
	g.mu.Unlock()
}
