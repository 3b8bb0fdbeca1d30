package admin

import (
	"context"
	"net/http"
	"net/url"
)

const pathAutoscaling = "/v1/autoscaling"

// AutoscalingAnswer is what an autoscaler needs to know of one local instance's models. GET /v1/autoscaling?model=M on
// the metrics listener or the admin socket answers it with that model alone, so that a path selects its number. For
// KEDA's metrics-api scaler, whose valueLocation is a GJSON path:
//
//	triggers:
//	  - type: metrics-api
//	    metadata:
//	      url: "http://spillway-local:9090/v1/autoscaling?model=llama-3.1-8b"
//	      valueLocation: "models.0.desired_replicas"
//	      targetValue: "1"
//
// Each instance of a zone reports what its own share of the requests needs. To add up several, sum needed_replicas:
// valueLocation "models.0.needed_replicas" with aggregateFromKubeServiceEndpoints "true" and aggregationType "sum".
type AutoscalingAnswer struct {
	Node   string             `json:"node"` // region/zone/instance
	Models []AutoscalingModel `json:"models"`
}

// AutoscalingModel is one model. Every number is finite.
type AutoscalingModel struct {
	Model string `json:"model"`
	// Desired replicas, inside the spec's bounds; Needed is the number before rounding and bounds, of this instance's
	// share of the demand.
	Desired int     `json:"desired_replicas"`
	Needed  float64 `json:"needed_replicas"`
	// Ready replicas take requests; Warm and Cold ones could after a moment, or a load.
	Ready int `json:"ready_replicas"`
	Total int `json:"total_replicas"`
	Warm  int `json:"warm_replicas"`
	Cold  int `json:"cold_replicas"`
	// Saturation is demand over the ready replicas' capacity, or how full the queue is where that is more.
	Saturation float64 `json:"saturation"`
	// Demand was asked for in the last half minute, refused requests included; Trend is its growth each second.
	Demand TokenRates `json:"demand"`
	Trend  TokenRates `json:"trend"`
	// Capacity of one replica.
	Capacity      TokenRates `json:"capacity_per_replica"`
	Waiting       int        `json:"waiting"`
	PredictedWait float64    `json:"predicted_wait_seconds"` // of a new request of class standard, a load included
	WaitP50       float64    `json:"wait_p50_seconds"`       // of the last minute's requests
	WaitP99       float64    `json:"wait_p99_seconds"`
	Target        float64    `json:"target"`       // part of a replica that is to be used
	LeadSeconds   float64    `json:"lead_seconds"` // how long a new replica takes until it serves
}

// TokenRates are tokens per second.
type TokenRates struct {
	Prefill float64 `json:"prefill_tokens_per_second"`
	Decode  float64 `json:"decode_tokens_per_second"`
}

// Autoscaling asks a local instance how many replicas its models should have; an empty model means all of them.
func (c *Client) Autoscaling(ctx context.Context, model string) (*AutoscalingAnswer, error) {
	path := pathAutoscaling
	if model != "" {
		path += "?model=" + url.QueryEscape(model)
	}
	return call[AutoscalingAnswer](ctx, c, http.MethodGet, path, nil)
}

// autoscaling answers it.
func (s *Server) autoscaling(w http.ResponseWriter, r *http.Request) {
	ask := s.cfg.Backend.Autoscaling
	if ask == nil {
		writeError(w, notHere())
		return
	}
	out, err := ask(r.Context(), r.URL.Query().Get("model"))
	answer(w, out, err)
}
