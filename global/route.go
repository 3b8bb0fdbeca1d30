package global

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/snapshot"
	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
)

// routePath is the URL path for clients that route themselves (RFC 8615).
const routePath = "/.well-known/spillway/route"

// routeAnswer lists the regions that a client may call, in order of preference.
type routeAnswer struct {
	Service     string        `json:"service"`
	Model       string        `json:"model,omitempty"`
	TTL         uint32        `json:"ttl_seconds"` // ask again after that
	SpecVersion uint64        `json:"spec_version"`
	PlanEpoch   uint64        `json:"plan_epoch"`
	Regions     []routeRegion `json:"regions"`
}

// routeRegion is one region. RTT and Predicted are left out if the client's location is unknown.
type routeRegion struct {
	Region    string   `json:"region"`
	BaseURL   string   `json:"base_url"` // what OpenAI's clients are given under this name
	RTT       *float64 `json:"rtt_seconds,omitempty"`
	Wait      float64  `json:"wait_seconds"`                // in the queue
	Predicted *float64 `json:"predicted_seconds,omitempty"` // RTT and wait
	State     string   `json:"state"`
}

// serveRoute answers with the regions for the caller.
func (s *redirector) serveRoute(w http.ResponseWriter, r *http.Request) {
	out, fail := s.buildRouteAnswer(r)
	if fail != nil {
		s.metrics.redirects.WithLabelValues(fail.Code).Inc()
		forward.WriteError(w, fail)
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

func (s *redirector) buildRouteAnswer(r *http.Request) (*routeAnswer, *openai.Error) {
	if r.Method == http.MethodPost {
		return nil, badMethodError("GET")
	}
	c, fail := s.identifyCaller(r)
	if fail != nil {
		return nil, fail
	}
	model := r.URL.Query().Get("model")
	if model != "" {
		if fail := c.checkModel(model); fail != nil {
			return nil, fail
		}
	}
	v := c.snapshot
	out := &routeAnswer{
		Service: strings.TrimSuffix(v.Spec.Services[c.service].Name, "."), Model: model, TTL: v.AnswerTTL(c.service),
		SpecVersion: v.Version, PlanEpoch: v.state.PlanEpoch, Regions: c.rankRegions(model),
	}
	if len(out.Regions) == 0 {
		return nil, openai.ResidencyDenied("no region of this service")
	}
	return out, nil
}

// checkModel refuses a model that the service does not serve or that the tenant may not use.
func (c *redirectCaller) checkModel(model string) *openai.Error {
	v := c.snapshot
	if v.Spec.FindModel(model) == nil && v.Spec.FindAlias(model) == nil || !v.ServesModel(c.service, model) {
		return openai.ModelNotFound(model, nil)
	}
	if t := snapshot.AliasTargets(v.Spec, model); !c.tenant.MayUseModel(model, model) && (len(t) == 0 || !c.tenant.MayUseModel(model, t[0])) {
		return openai.ModelNotAllowed(model)
	}
	return nil
}

// rankRegions picks the best region, then the best without it, and so on. Regions that are drained or lost are listed
// only if there is no other.
func (c *redirectCaller) rankRegions(model string) []routeRegion {
	v, fix := c.snapshot, c.snapshot.atlas.Locate(c.client)
	q := v.BuildQuery(c.service, fix.Cell, c.client, v.ExcludedRegions(c.tenant))
	without := v.RegionsWithoutModel(c.service, model, &q.Excluded)
	q.Unavailable = q.Unavailable.Union(&without)
	out := []routeRegion{}
	for range v.Regions {
		choice := v.Table.PickRegion(&q)
		unwell := choice.Reason == steer.ReasonAllDrained || choice.Reason == steer.ReasonAllUnavailable
		if choice.Region < 0 || unwell && len(out) > 0 {
			break
		}
		q.Excluded.Add(choice.Region)
		out = append(out, c.describeRegion(choice.Region, model, fix))
		if unwell {
			break
		}
	}
	return out
}

func (c *redirectCaller) describeRegion(region int, model string, fix geo.AddressInfo) routeRegion {
	v := c.snapshot
	origin := regionOrigin(v, c.service, region)
	out := routeRegion{Region: v.Spec.Regions[region].Name, BaseURL: origin.String() + "/v1", State: v.RegionStateName(region)}
	wait, _ := v.ModelWait(region, c.service, model)
	out.Wait = roundSeconds(wait)
	if e, ok := v.EstimateRTT(fix.Cell, region); ok {
		near, whole := roundSeconds(e.RTT.Seconds()), roundSeconds(e.RTT.Seconds()+wait)
		out.RTT, out.Predicted = &near, &whole
	}
	return out
}

// roundSeconds rounds to a tenth of a millisecond: more digits would be noise.
func roundSeconds(s float64) float64 {
	return math.Round(s*1e4) / float64(time.Second/(100*time.Microsecond))
}
