package admin

import (
	"context"
	"net/http"
	"time"
)

const pathStopLever = "/v1/stop-lever"

// StopLeverRequest pulls the stop lever, which ends the drains of drills and forbids new drains, or releases it.
type StopLeverRequest struct {
	Stop   bool   `json:"stop"`
	Reason string `json:"reason,omitempty"` // required to stop
}

// StopLeverAnswer is the stop lever after the call.
type StopLeverAnswer struct {
	Stopped bool      `json:"stopped"`
	Reason  string    `json:"reason,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	At      time.Time `json:"at,omitzero"`
}

// GetStopLever returns the stop lever.
func (c *Client) GetStopLever(ctx context.Context) (*StopLeverAnswer, error) {
	return callNode[StopLeverAnswer](ctx, c, http.MethodGet, pathStopLever, nil)
}

// SetStopLever pulls or releases the stop lever.
func (c *Client) SetStopLever(ctx context.Context, r StopLeverRequest) (*StopLeverAnswer, error) {
	return callNode[StopLeverAnswer](ctx, c, http.MethodPost, pathStopLever, r)
}
