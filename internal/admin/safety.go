package admin

import "time"

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
