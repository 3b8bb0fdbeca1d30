package admin

import (
	"context"
	"net/http"
	"time"
)

const pathStage = "/v1/stage"

// What becomes of a spec on trial.
const (
	StagePromote  = "promote"
	StageRollback = "rollback"
)

// StageRequest ends a trial.
type StageRequest struct {
	Action string `json:"action"`           // "promote" or "rollback"
	Number uint64 `json:"number,omitempty"` // of the stage; 0: the one under way
	Reason string `json:"reason,omitempty"` // why, for the audit
}

// StageStatus is a spec on trial.
type StageStatus struct {
	Number     uint64   `json:"number"`
	Version    uint64   `json:"version"`              // that it has, or will have when it is promoted
	Regions    []string `json:"regions,omitempty"`    // where it is in force; none: everywhere
	Everywhere bool     `json:"everywhere,omitempty"` // a rollback puts the spec before it back in force
	Guard      string   `json:"guard,omitempty"`
	WindowMS   int64    `json:"window_ms"`  // 0: until somebody ends it
	ElapsedMS  int64    `json:"elapsed_ms"` // of the window, as of the last mark
	// Figures are what the leader measured last, a line each: first what holds the decision up.
	Figures string    `json:"figures,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Text    string    `json:"text,omitempty"` // the candidate; of a trial everywhere, the spec to go back to
}

// StageAnswer says what is on trial, and after a change what is in force.
type StageAnswer struct {
	Node        string       `json:"node"`
	SpecVersion uint64       `json:"spec_version"`
	Stage       *StageStatus `json:"stage,omitempty"` // absent: nothing is on trial
}

// Stage says what is on trial.
func (c *Client) Stage(ctx context.Context) (*StageAnswer, error) {
	return call[StageAnswer](ctx, c, http.MethodGet, pathStage, nil)
}

// EndStage promotes what is on trial, or takes it back.
func (c *Client) EndStage(ctx context.Context, r StageRequest) (*StageAnswer, error) {
	return call[StageAnswer](ctx, c, http.MethodPost, pathStage, r)
}
