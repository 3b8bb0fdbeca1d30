package local

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/sched"
)

// resolveModel sets the request's model. Behind a gateway the model is resolved already. A standalone zone serves what its
// workers serve: a name that is not in the spec is taken as a model's name.
func (q *requestHandler) resolveModel(v *zoneRequest, o *zonePolicy) *openai.Error {
	v.namedLimit, v.Model = v.Envelope.MaxTokens, v.Envelope.Model
	if !q.isStandalone(v) {
		return nil
	}
	asked, pin := v.Envelope.Model, forward.FirstValue(v.httpRequest.Header, forward.HeaderClientTarget)
	ans, err := modelroute.ResolveModel(o.Spec, o.buildRouteQuery(asked, v))
	var notTarget *modelroute.NotATargetError
	switch {
	case errors.As(err, &notTarget):
		return targetError(notTarget)
	case err != nil && pin != "" && pin != asked:
		return targetError(&modelroute.NotATargetError{Model: asked, Pin: pin, Targets: []string{asked}})
	case err != nil:
		ans.Model = asked
	}
	if t := o.standaloneTenant(); t != nil && !t.MayUseModel(asked, ans.Model) {
		return openai.ModelNotAllowed(asked)
	}
	v.pinned = ans.Rule == modelroute.RulePin
	v.setModel(ans.Model)
	return nil
}

func targetError(e error) *openai.Error {
	return &openai.Error{
		Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: openai.CodeInvalidValue, Param: forward.HeaderClientTarget,
		Message: forward.HeaderClientTarget + ": " + e.Error(), NoRetry: true,
	}
}

// standaloneClass is the class of a request in a standalone zone. It is the class that the request names, limited to the urgency
// of the tenant's class where the spec declares one.
func (q *requestHandler) standaloneClass(named spec.Class, given bool) spec.Class {
	t := q.policy.Load().standaloneTenant()
	switch {
	case t == nil:
		return named
	case !given:
		return t.Class
	}
	return max(t.Class, named)
}

// setModel sets the model in the request and in its headers, query and path: the engine must see the name that its worker serves.
func (v *zoneRequest) setModel(model string) {
	v.Model, v.imposedLimit, v.Envelope.MaxTokens = model, 0, v.namedLimit
	forward.ReplaceHeaderModel(v.httpRequest.Header, model)
	if target := forward.ReplaceQueryModel(v.httpRequest.URL.RawQuery, model); target != v.httpRequest.URL.RawQuery {
		v.setTarget(v.httpRequest.URL.Path, v.httpRequest.URL.RawPath, target)
	}
	escaped := v.httpRequest.URL.EscapedPath()
	if _, infer := openai.ModelFromPath(escaped); !infer {
		return // the body names it; see buildForwardedBody
	}
	path := openai.ReplacePathModel(escaped, model)
	if plain, err := url.PathUnescape(path); err == nil && path != escaped {
		v.setTarget(plain, path, v.httpRequest.URL.RawQuery)
	}
}

// setTarget sets the path and query that the request is forwarded to.
func (v *zoneRequest) setTarget(path, raw, query string) {
	u := *v.httpRequest.URL
	u.Path, u.RawPath, u.RawQuery = path, raw, query
	v.httpRequest = v.httpRequest.WithContext(v.httpRequest.Context()) // a copy: the server's own request stays unchanged
	v.httpRequest.URL = &u
}

// limitOutput applies the model's output limit. A request that asks for more is refused. One that names no limit gets the
// model's, or less where prompt and answer together would exceed the model's context.
func (q *requestHandler) limitOutput(v *zoneRequest, o *zonePolicy) *openai.Error {
	m := o.Spec.FindModel(v.Model)
	if m == nil || m.OutputLimit <= 0 || !v.PathShape.GeneratesText() {
		return nil
	}
	if asked, over := v.Envelope.ExceedsOutputLimit(m.OutputLimit); over {
		return openai.OutputTooLong(asked, m.OutputLimit)
	}
	n := int64(m.OutputLimit)
	var longest int64
	q.scheduler.update(func(s *sched.Scheduler) { longest = s.ModelContextTokens(v.Model) })
	if longest > 0 {
		n = min(n, longest-v.EstimatedTokens*5/4-16) // an estimate may be a quarter too short
	}
	if v.namedLimit == 0 && n > 0 {
		v.Envelope.MaxTokens, v.imposedLimit = int(n), int(n)
	}
	return nil
}

// applyFallback selects a smaller model in a standalone zone, when the requested one cannot meet the class's TTFT target and
// the smaller one can. A model pinned by the caller stays. Behind a gateway the gateway decides.
func (q *requestHandler) applyFallback(w http.ResponseWriter, v *zoneRequest) {
	o := q.policy.Load()
	m := o.Spec.FindModel(v.Model)
	if !q.isStandalone(v) || v.pinned || m == nil || m.Fallback == "" {
		return
	}
	to := q.chooseFallback(v, o, m)
	if to == nil {
		return
	}
	q.metrics.fallbacks.WithLabelValues(m.Name, to.Name).Inc()
	v.setModel(to.Name)
	if e := q.limitOutput(v, o); e != nil {
		return // not reached: chooseFallback considers the output limit
	}
	w.Header().Set(forward.HeaderFallback, v.Envelope.Model+" -> "+to.Name)
}

// chooseFallback returns the model that answers instead of m; nil when m itself does.
func (q *requestHandler) chooseFallback(v *zoneRequest, o *zonePolicy, m *spec.Model) *spec.Model {
	v.setAffinity(o)
	target := o.TTFTTarget(m.Name, v.Class).Seconds()
	now := time.Now()
	if q.scheduler.predictTTFT(v, m.Name, now) <= target {
		return nil
	}
	for f := range modelroute.FallbackModels(o.Spec, o.standaloneTenant(), m) {
		if f.OutputLimit > 0 && v.namedLimit > f.OutputLimit {
			continue
		}
		if q.scheduler.predictTTFT(v, f.Name, now) <= target {
			return f
		}
	}
	return nil
}

// listOfferedModels lists the models and aliases that the zone serves to its clients.
func (q *requestHandler) listOfferedModels() []string {
	var names []string
	q.scheduler.update(func(s *sched.Scheduler) { names = s.ServedModels() })
	if !q.cfg.Plain {
		return names
	}
	o := q.policy.Load()
	may := func(asked, model string) bool {
		t := o.standaloneTenant()
		return t == nil || t.MayUseModel(asked, model)
	}
	there := slices.Clone(names)
	names = slices.DeleteFunc(names, func(n string) bool { return !may(n, n) })
	for i := range o.Spec.Aliases {
		x := &o.Spec.Aliases[i]
		if slices.ContainsFunc(x.Targets, func(t spec.AliasTarget) bool { return slices.Contains(there, t.Model) && may(x.Name, t.Model) }) {
			names = append(names, x.Name)
		}
	}
	slices.Sort(names)
	return names
}
