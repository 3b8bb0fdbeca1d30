package global

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
)

// pathRoute is where clients that route themselves ask (RFC 8615).
const pathRoute = "/.well-known/spillway/route"

// routeAnswer lists the regions that a client may call, in the order in which it would be sent there.
type routeAnswer struct {
	Service     string        `json:"service"`
	Model       string        `json:"model,omitempty"`
	TTL         uint32        `json:"ttl_seconds"` // ask again after that
	SpecVersion uint64        `json:"spec_version"`
	PlanEpoch   uint64        `json:"plan_epoch"`
	Regions     []routeRegion `json:"regions"`
}

// routeRegion is one region. RTT and Predicted are left out when the client's place is not known.
type routeRegion struct {
	Region    string   `json:"region"`
	BaseURL   string   `json:"base_url"` // what OpenAI's clients are given under this name
	RTT       *float64 `json:"rtt_seconds,omitempty"`
	Wait      float64  `json:"wait_seconds"`                // in the queue
	Predicted *float64 `json:"predicted_seconds,omitempty"` // RTT and wait
	State     string   `json:"state"`
}

// route answers with the regions that suit the caller.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	out, fail := s.routes(r)
	if fail != nil {
		s.metrics.redirects.WithLabelValues(fail.Code).Inc()
		relay.WriteError(w, fail)
		return
	}
	s.metrics.redirects.WithLabelValues("route").Inc()
	h := w.Header()
	h.Set("Cache-Control", fmt.Sprintf("private, max-age=%d", out.TTL))
	h.Set("Vary", "Authorization, X-Api-Key, Api-Key, Host")
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(out) // a caller that has left needs no answer
}

func (s *Server) routes(r *http.Request) (*routeAnswer, *openai.Error) {
	if r.Method == http.MethodPost {
		return nil, badMethod("GET")
	}
	c, fail := s.caller(r)
	if fail != nil {
		return nil, fail
	}
	model := r.URL.Query().Get("model")
	if model != "" {
		if fail := c.mayAsk(model); fail != nil {
			return nil, fail
		}
	}
	v := c.view
	out := &routeAnswer{
		Service: strings.TrimSuffix(v.spec.Services[c.service].Name, "."), Model: model, TTL: v.ttl(c.service),
		SpecVersion: v.version, PlanEpoch: v.state.PlanEpoch, Regions: c.ordered(model),
	}
	if len(out.Regions) == 0 {
		return nil, openai.Residency("no region of this service")
	}
	return out, nil
}

// mayAsk refuses a model that the service does not serve or that the tenant may not use.
func (c *caller) mayAsk(model string) *openai.Error {
	v := c.view
	if v.spec.ModelNamed(model) == nil && v.spec.AliasNamed(model) == nil || !v.serves(c.service, model) {
		return openai.ModelNotFound(model, nil)
	}
	if t := targets(v.spec, model); !c.tenant.MayUse(model, model) && (len(t) == 0 || !c.tenant.MayUse(model, t[0])) {
		return openai.ModelNotAllowed(model)
	}
	return nil
}

// ordered asks for the best region, then for the best without it, and so on. Regions that are drained or lost are listed
// only when there is no other, as everywhere.
func (c *caller) ordered(model string) []routeRegion {
	v, fix := c.view, c.view.atlas.Locate(c.client)
	q := v.query(c.service, fix.Cell, c.client, v.barred(c.tenant))
	without := v.without(c.service, model, &q.Barred)
	q.Lost = q.Lost.Union(&without)
	out := []routeRegion{}
	for range v.regions {
		choice := v.table.Pick(&q)
		unwell := choice.Reason == steer.Drained || choice.Reason == steer.Lost
		if choice.Region < 0 || unwell && len(out) > 0 {
			break
		}
		q.Barred.Add(choice.Region)
		out = append(out, c.regionOf(choice.Region, model, fix))
		if unwell {
			break
		}
	}
	return out
}

// without are the regions that have no worker ready for the model, if one that the caller may use has.
func (v *View) without(service int, model string, barred *steer.Set) (out steer.Set) {
	if model == "" {
		return out
	}
	some := false
	for r := range v.regions {
		if _, ready := v.waitFor(r, service, model); ready {
			some = some || !barred.Has(r)
		} else {
			out.Add(r)
		}
	}
	if !some {
		return steer.Set{}
	}
	return out
}

// waitFor is the wait of a region for a model, or for the fastest target of an alias, in seconds; for the whole service
// without one.
func (v *View) waitFor(region, service int, model string) (wait float64, ready bool) {
	if model == "" {
		return v.regions[region].wait[service], true
	}
	names := append(targets(v.spec, model), model)
	for _, name := range names {
		m := v.regions[region].group.Summary.Model(name)
		if m == nil {
			continue
		}
		if w, ok := m.Wait(spec.Standard); ok && (!ready || w.Seconds() < wait) {
			wait, ready = w.Seconds(), true
		}
	}
	return wait, ready
}

func (c *caller) regionOf(region int, model string, fix geo.Fix) routeRegion {
	v := c.view
	origin := v.origin(c.service, region)
	out := routeRegion{Region: v.spec.Regions[region].Name, BaseURL: origin.String() + "/v1", State: v.stateOf(region)}
	wait, _ := v.waitFor(region, c.service, model)
	out.Wait = rounded(wait)
	if e, ok := v.estimate(fix.Cell, region); ok {
		near, whole := rounded(e.RTT.Seconds()), rounded(e.RTT.Seconds()+wait)
		out.RTT, out.Predicted = &near, &whole
	}
	return out
}

// rounded is to the tenth of a millisecond: more digits say nothing.
func rounded(s float64) float64 {
	return math.Round(s*1e4) / float64(time.Second/(100*time.Microsecond))
}
