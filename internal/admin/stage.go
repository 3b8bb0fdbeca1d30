package admin

import (
	"context"
	"net/http"
	"time"
)

const pathStage = "/v1/stage"

// The actions of a StageRequest.
const (
	StagePromote  = "promote"
	StageRollback = "rollback"
)

// StageRequest promotes the staged spec or rolls it back.
type StageRequest struct {
	Action string `json:"action"`           // "promote" or "rollback"
	Number uint64 `json:"number,omitempty"` // of the stage; 0: the current one
	Reason string `json:"reason,omitempty"` // for the audit log
}

// StageStatus is a staged spec.
type StageStatus struct {
	Number     uint64   `json:"number"`
	Version    uint64   `json:"version"`              // its version, or the one that it gets when it is promoted
	Regions    []string `json:"regions,omitempty"`    // regions in which it is in force; empty: all
	Everywhere bool     `json:"everywhere,omitempty"` // in force in all regions; a rollback restores the spec before it
	Guard      string   `json:"guard,omitempty"`
	WindowMS   int64    `json:"window_ms"`  // 0: until promoted or rolled back
	ElapsedMS  int64    `json:"elapsed_ms"` // of the window, as of the last replicated progress
	// Figures are the leader's last measurements, one line each; the first is what the decision waits for.
	Figures string    `json:"figures,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at,omitzero"`
	Text    string    `json:"text,omitempty"` // the staged spec; if Everywhere, the spec that a rollback restores
}

// StageAnswer contains the staged spec, and the version in force.
type StageAnswer struct {
	Node        string       `json:"node"`
	SpecVersion uint64       `json:"spec_version"`
	Stage       *StageStatus `json:"stage,omitempty"` // absent: no spec is staged
}

// GetStage returns the staged spec.
func (c *Client) GetStage(ctx context.Context) (*StageAnswer, error) {
	return callNode[StageAnswer](ctx, c, http.MethodGet, pathStage, nil)
}

// EndStage promotes the staged spec, or rolls it back.
func (c *Client) EndStage(ctx context.Context, r StageRequest) (*StageAnswer, error) {
	return callNode[StageAnswer](ctx, c, http.MethodPost, pathStage, r)
}
