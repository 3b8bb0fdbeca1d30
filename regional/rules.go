package regional

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/route"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/regional/zone"
)

// resolve turns the name that was asked for into a model that the caller may use.
func (g *Gateway) resolve(r *http.Request, q *request, svc *spec.Service) *openai.Error {
	g.mu.Lock()
	chance := g.rng.Float64()
	g.mu.Unlock()
	asked := q.env.Model
	a, err := route.Resolve(q.state.spec, &route.Ask{
		Model: asked, Pin: relay.First(r.Header, relay.HeaderClientTarget), Tenant: q.tenant.Name, Header: r.Header, Chance: chance,
		Session: relay.First(r.Header, relay.HeaderClientSession), User: q.env.User, Client: address(q.client),
	})
	if not := (*route.NotATarget)(nil); err != nil && errors.As(err, &not) {
		return badHeader(relay.HeaderClientTarget, not.Error())
	}
	if err != nil || !q.state.serves(svc, asked, a.Model) {
		return openai.ModelNotFound(asked, g.served(q.state, q.tenant, svc))
	}
	if !q.tenant.MayUse(asked, a.Model) {
		return openai.ModelNotAllowed(asked)
	}
	q.settled = a.Rule == route.RulePin
	q.become(q.state.spec.ModelNamed(a.Model))
	relay.RenameModel(r.Header, a.Model)
	return nil
}

// become makes the request one for a model: the engine must see the name that the worker serves.
func (q *request) become(m *spec.Model) {
	q.model, q.body = m, openai.WordingOf(q.raw)
	if q.kind != relay.Usual {
		return
	}
	q.body.SetModel(&q.env, m.Name)
	if q.shape.ModelInPath() {
		q.path = openai.InferPath(q.inferPath, m.Name)
		if q.args != "" {
			q.path += "?" + q.args
		}
	}
	q.rename(m.Name)
}

// rename puts a model where the query names one.
func (q *request) rename(model string) {
	if path, query, ok := strings.Cut(q.path, "?"); ok {
		q.path = path + "?" + relay.RenameQuery(query, model)
	}
}

// place chooses where the request goes: for the model it resolved to or, when no place can meet the class's target time
// to first token with that one, for a fallback with which one can. What a caller pinned stays, and what came from another
// region was settled there.
func (g *Gateway) place(w http.ResponseWriter, q *request) (choice, bool) {
	first, ok := g.choose(q)
	target := q.model.TTFT.Of(q.query.Class)
	if ok && meets(&first.verdict, target) || q.settled || q.peer || !openai.Continues(q.path) {
		return first, ok
	}
	for m := range route.Fallbacks(q.state.spec, q.tenant, q.model) {
		svc := q.state.spec.Service(q.service)
		if !q.state.serves(svc, m.Name, m.Name) || tooLong(m, q.query.PromptTokens, q.env.MaxTokens) {
			continue
		}
		own := q.query
		q.query.Model, q.query.MaxTokens = m.Name, g.expected(q, m)
		c, found := g.choose(q)
		if found && meets(&c.verdict, target) {
			if ok {
				g.release(first)
			}
			g.fallBack(w, q, m)
			return c, true
		}
		if found {
			g.release(c)
		}
		q.query = own
	}
	return first, ok
}

// meets says that a verdict promises the first token in time. A last resort promises nothing.
func meets(v *zone.Verdict, target time.Duration) bool {
	return v.Seconds <= target.Seconds() && v.Reason != zone.ReasonLastResort
}

// tooLong says that a prompt and the output asked for surely do not fit.
func tooLong(m *spec.Model, prompt, output int) bool {
	return m.MaxContext > 0 && zone.TooLongFrom(prompt)+output > m.MaxContext || m.OutputLimit > 0 && output > m.OutputLimit
}

// expected is how many tokens a model's answer to the request will have.
func (g *Gateway) expected(q *request, m *spec.Model) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.demand.expected(m.Name, outputLimit(m, q.env.MaxTokens)) * q.env.N
}

// outputLimit is the longest answer that a model gives to a request for asked tokens, 0 for none in particular.
func outputLimit(m *spec.Model, asked int) int {
	if asked == 0 {
		asked = m.MaxOutput
	}
	if m.OutputLimit > 0 {
		asked = min(asked, m.OutputLimit)
	}
	return asked
}

// fallBack has another model answer, and says so.
func (g *Gateway) fallBack(w http.ResponseWriter, q *request, m *spec.Model) {
	g.metrics.fellBack(q.model.Name, m.Name)
	q.become(m)
	q.hop.Model = m.Name
	w.Header().Set(relay.HeaderFallback, q.env.Model+" -> "+m.Name)
}

// address is the caller's as text, empty when it is not known.
func address(a netip.Addr) string {
	if a.IsValid() {
		return a.String()
	}
	return ""
}
