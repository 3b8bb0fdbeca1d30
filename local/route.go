package local

import (
	"errors"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/route"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
)

// resolve finds the model for a visit. Behind a gateway that is done already. A zone that stands alone serves what its
// workers do: a name that the spec does not know is taken for a model's.
func (a *Agent) resolve(v *visit, o *orders) *openai.Error {
	v.named, v.model = v.env.MaxTokens, v.env.Model
	if !a.cfg.Plain {
		return nil
	}
	asked, pin := v.env.Model, relay.First(v.r.Header, relay.HeaderClientTarget)
	ans, err := route.Resolve(o.spec, o.ask(asked, v))
	var not *route.NotATarget
	switch {
	case errors.As(err, &not):
		return badTarget(not)
	case err != nil && pin != "" && pin != asked:
		return badTarget(&route.NotATarget{Model: asked, Pin: pin, Targets: []string{asked}})
	case err != nil:
		ans.Model = asked
	}
	if t := o.alone(); t != nil && !t.MayUse(asked, ans.Model) {
		return openai.ModelNotAllowed(asked)
	}
	v.pinned = ans.Rule == route.RulePin
	v.become(ans.Model)
	return nil
}

func badTarget(e error) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: openai.CodeInvalidValue, Param: relay.HeaderClientTarget,
		Message: relay.HeaderClientTarget + ": " + e.Error(), NoRetry: true,
	}
}

// ask is what a visit says to the rules.
func (o *orders) ask(model string, v *visit) *route.Ask {
	q := &route.Ask{
		Model: model, Pin: relay.First(v.r.Header, relay.HeaderClientTarget), Tenant: v.hop.Tenant, Header: v.r.Header, Chance: rand.Float64(),
		Session: relay.First(v.r.Header, relay.HeaderClientSession), User: v.env.User,
	}
	if at, err := netip.ParseAddrPort(v.r.RemoteAddr); err == nil {
		q.Client = at.Addr().Unmap().String()
	}
	return q
}

// alone is everybody's tenant in a zone that stands alone, nil when its spec declares none.
func (o *orders) alone() *spec.Tenant { return o.spec.Tenant(spec.TenantAlone) }

// classAlone is the class of a request in a zone that stands alone: the one it names, no more urgent than the tenant's
// where the spec declares one.
func (a *Agent) classAlone(named spec.Class, given bool) spec.Class {
	t := a.policy.Load().alone()
	switch {
	case t == nil:
		return named
	case !given:
		return t.Class
	}
	return max(t.Class, named)
}

// become makes the visit one for a model: the engine must see the name that its worker serves.
func (v *visit) become(model string) {
	v.model, v.capped, v.env.MaxTokens = model, 0, v.named
	relay.RenameModel(v.r.Header, model)
	if target := relay.RenameQuery(v.r.URL.RawQuery, model); target != v.r.URL.RawQuery {
		v.aim(v.r.URL.Path, v.r.URL.RawPath, target)
	}
	escaped := v.r.URL.EscapedPath()
	if _, infer := openai.InferModel(escaped); !infer {
		return // the body names it; see goes
	}
	path := openai.InferPath(escaped, model)
	if plain, err := url.PathUnescape(path); err == nil && path != escaped {
		v.aim(plain, path, v.r.URL.RawQuery)
	}
}

// aim has the visit go to another path and query.
func (v *visit) aim(path, raw, query string) {
	u := *v.r.URL
	u.Path, u.RawPath, u.RawQuery = path, raw, query
	v.r = v.r.WithContext(v.r.Context()) // a copy: the server's own stays as it came
	v.r.URL = &u
}

// limit holds a visit to the model's longest answer: one that asks for more is refused, and one that names no limit is
// given that one, or less where prompt and answer would not fit the model's context together.
func (a *Agent) limit(v *visit, o *orders) *openai.Error {
	m := o.spec.ModelNamed(v.model)
	if m == nil || m.OutputLimit <= 0 || !v.shape.Generates() {
		return nil
	}
	if asked, over := v.env.Exceeds(m.OutputLimit); over {
		return openai.OutputTooLong(asked, m.OutputLimit)
	}
	n := int64(m.OutputLimit)
	if longest := a.floor.context(v.model); longest > 0 {
		n = min(n, longest-v.estimate*5/4-16) // an estimate may be a quarter too short
	}
	if v.named == 0 && n > 0 {
		v.env.MaxTokens, v.capped = int(n), int(n)
	}
	return nil
}

// context is the longest prompt and answer that a worker takes for a model, in tokens; 0 when none says.
func (f *floor) context(model string) (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.pools[model]; p != nil {
		for i := range p.view.Workers {
			n = max(n, p.view.Workers[i].MaxContext)
		}
	}
	return n
}

// fallBack has a smaller model answer in a zone that stands alone, when the one that was asked for cannot meet the
// class's target and the smaller one can. What a caller pinned stays. Behind a gateway the gateway decides.
func (a *Agent) fallBack(w http.ResponseWriter, v *visit) {
	o := a.policy.Load()
	m := o.spec.ModelNamed(v.model)
	if !a.cfg.Plain || v.pinned || m == nil || m.Fallback == "" {
		return
	}
	to := a.fallback(v, o, m)
	if to == nil {
		return
	}
	a.meters.falls.WithLabelValues(m.Name, to.Name).Inc()
	v.become(to.Name)
	if e := a.limit(v, o); e != nil {
		return // fallback has seen to that
	}
	w.Header().Set(relay.HeaderFallback, v.env.Model+" -> "+to.Name)
}

// fallback is the model that would answer instead of m; nil when m itself would.
func (a *Agent) fallback(v *visit, o *orders, m *spec.Model) *spec.Model {
	target := o.ttft(m.Name, v.class).Seconds()
	now := time.Now()
	if a.floor.foresee(v, m.Name, now) <= target {
		return nil
	}
	for f := range route.Fallbacks(o.spec, o.alone(), m) {
		if f.OutputLimit > 0 && v.named > f.OutputLimit {
			continue
		}
		if a.floor.foresee(v, f.Name, now) <= target {
			return f
		}
	}
	return nil
}

// foresee predicts when a visit would have its first token from a model, in seconds; infinity when nobody can say.
func (f *floor) foresee(v *visit, model string, now time.Time) float64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pools[model]
	if p == nil || len(p.workers) == 0 {
		return math.Inf(1)
	}
	probe := *v
	probe.model, probe.query = model, pick.Query{}
	f.fit(&probe, p)
	probe.query.MaxWait = 0 // any backlog: what it costs is the question
	d, ok := pick.Look(&probe.query, p.view, now, f.rng, nil)
	wait, drains := p.queue.Wait(v.class, now)
	switch {
	case ok && p.queue.Len() == 0:
		return d.Seconds
	case ok && drains:
		return d.Seconds + wait.Seconds()
	case drains && d.Reason == pick.ReasonBusy:
		return wait.Seconds()
	}
	return math.Inf(1)
}

// offered are the models and aliases that the zone serves to those who ask it.
func (a *Agent) offered() []string {
	names := a.floor.served()
	if !a.cfg.Plain {
		return names
	}
	o := a.policy.Load()
	may := func(asked, model string) bool { t := o.alone(); return t == nil || t.MayUse(asked, model) }
	there := slices.Clone(names)
	names = slices.DeleteFunc(names, func(n string) bool { return !may(n, n) })
	for i := range o.spec.Aliases {
		x := &o.spec.Aliases[i]
		if slices.ContainsFunc(x.Targets, func(t spec.Target) bool { return slices.Contains(there, t.Model) && may(x.Name, t.Model) }) {
			names = append(names, x.Name)
		}
	}
	slices.Sort(names)
	return names
}
