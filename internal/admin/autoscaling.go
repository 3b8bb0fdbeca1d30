package admin

import (
	"context"
	"net/http"
	"net/url"
)

const pathAutoscaling = "/v1/autoscaling"

// AutoscalingAnswer contains the replica recommendations for the models of one local instance. GET
// /v1/autoscaling?model=M on the metrics listener or the admin socket returns only that model, so that a fixed path selects
// its number. For KEDA's metrics-api scaler, whose valueLocation is a GJSON path:
//
//	triggers:
//	  - type: metrics-api
//	    metadata:
//	      url: "http://spillway-local:9090/v1/autoscaling?model=llama-3.1-8b"
//	      valueLocation: "models.0.desired_replicas"
//	      targetValue: "1"
//
// Each instance of a zone reports the need of its own share of the requests. For several instances, sum needed_replicas:
// valueLocation "models.0.needed_replicas" with aggregateFromKubeServiceEndpoints "true" and aggregationType "sum".
type AutoscalingAnswer struct {
	Node   string             `json:"node"` // region/zone/instance
	Models []AutoscalingModel `json:"models"`
}

// AutoscalingModel is one model. Every number is finite.
type AutoscalingModel struct {
	Model string `json:"model"`
	// Desired is within the spec's bounds. Needed is the number before rounding and bounds, for this instance's share of
	// the demand.
	Desired int     `json:"desired_replicas"`
	Needed  float64 `json:"needed_replicas"`
	// Ready replicas accept requests. Warm ones are asleep, Cold ones could load the model.
	Ready int `json:"ready_replicas"`
	Total int `json:"total_replicas"`
	Warm  int `json:"warm_replicas"`
	Cold  int `json:"cold_replicas"`
	// Saturation is the demand divided by the capacity of the ready replicas, or the fill ratio of the queue if greater.
	Saturation float64 `json:"saturation"`
	// Demand is that of the last 30 s, rejected requests included. Trend is its growth per second.
	Demand TokenRates `json:"demand"`
	Trend  TokenRates `json:"trend"`
	// Capacity is that of one replica.
	Capacity      TokenRates `json:"capacity_per_replica"`
	Waiting       int        `json:"waiting"`
	PredictedWait float64    `json:"predicted_wait_seconds"` // of a new request of class standard, including a model load
	WaitP50       float64    `json:"wait_p50_seconds"`       // of the last minute's requests
	WaitP99       float64    `json:"wait_p99_seconds"`
	Target        float64    `json:"target"`       // target utilization of a replica, 0..1
	LeadSeconds   float64    `json:"lead_seconds"` // time until a new replica serves
}

// TokenRates are tokens per second.
type TokenRates struct {
	Prefill float64 `json:"prefill_tokens_per_second"`
	Decode  float64 `json:"decode_tokens_per_second"`
}

// GetAutoscaling returns the replica recommendations of a local instance. An empty model means all models.
func (c *Client) GetAutoscaling(ctx context.Context, model string) (*AutoscalingAnswer, error) {
	path := pathAutoscaling
	if model != "" {
		path += "?model=" + url.QueryEscape(model)
	}
	return callNode[AutoscalingAnswer](ctx, c, http.MethodGet, path, nil)
}

// serveAutoscaling serves GET /v1/autoscaling.
func (s *Server) serveAutoscaling(w http.ResponseWriter, r *http.Request) {
	ask := s.cfg.Backend.Autoscaling
	if ask == nil {
		writeError(w, notSupportedHere())
		return
	}
	out, err := ask(r.Context(), r.URL.Query().Get("model"))
	writeAnswer(w, out, err)
}
