package admin

import (
	"context"
	"net/http"
	"time"
)

// ApplyRequest requests a new spec.
type ApplyRequest struct {
	Name    string `json:"name"`              // the file's name, for error messages
	Text    string `json:"text"`              // the spec as YAML
	BasedOn uint64 `json:"based_on"`          // the version it replaces; 0 means any
	DryRun  bool   `json:"dry_run,omitempty"` // compute the effect and change nothing
	Reason  string `json:"reason,omitempty"`  // for the audit log

	// With Stage or Guard the spec is staged first: in the regions of Stage, or everywhere.
	Stage   []string `json:"stage,omitempty"`
	ForMS   int64    `json:"for_ms,omitempty"`  // time until it is promoted; 0: until an operator promotes it
	Guard   string   `json:"guard,omitempty"`   // limits that roll it back, such as "error_rate<2%,ttft_p99<1.5x"
	Replace bool     `json:"replace,omitempty"` // replace the staged spec
}

// ApplyAnswer contains the changes, or with DryRun those that would be made.
type ApplyAnswer struct {
	Version uint64   `json:"version"` // in force after the call
	DryRun  bool     `json:"dry_run"`
	Changes []Change `json:"changes"`
	Moves   []Move   `json:"moves"`
	Replay  *Replay  `json:"replay,omitempty"` // of a dry run
	// Stage is the staged spec after the call, or with DryRun the one that would be staged. Moves then happen at its
	// promotion.
	Stage *StageStatus `json:"stage,omitempty"`
}

// Replay compares a new spec with the one in force by the demand of the last minutes. Both are solved for each minute, with
// the current capacity and waits: a wait does not change with the moved load.
type Replay struct {
	Minutes  int             `json:"minutes"` // replayed minutes of observed demand, at most 15; 0: no demand was observed
	Services []ReplayService `json:"services"`
	Notes    []string        `json:"notes,omitempty"`
}

// ReplayService is the result for one service.
type ReplayService struct {
	Service    string  `json:"service"`
	Moved      float64 `json:"moved"`       // share of its demand that another region would serve, 0..1
	Cells      int     `json:"cells"`       // cells with demand
	CellsMoved int     `json:"cells_moved"` // cells of which some clients would move
	// P50Before and P50After are the medians of RTT plus predicted wait over its demand, in seconds; 0 without demand from
	// known locations.
	P50Before float64 `json:"p50_seconds_before"`
	P50After  float64 `json:"p50_seconds_after"`
	// QuietCells are cells without recent demand; QuietCellsMoved of them would move.
	QuietCells      int `json:"quiet_cells"`
	QuietCellsMoved int `json:"quiet_cells_moved"`
}

// Change is one line of a spec diff.
type Change struct {
	Path string `json:"path"`
	From string `json:"from"`
	To   string `json:"to"`
}

// Move is a group of clients that a new spec would move to another region.
type Move struct {
	Service string  `json:"service"`
	Cell    string  `json:"cell"`
	From    string  `json:"from"`
	To      string  `json:"to"`
	Share   float64 `json:"share"`           // of the service's demand, or of its cells if Quiet, 0..1
	Quiet   bool    `json:"quiet,omitempty"` // no demand was observed for the service: each cell has the same weight
}

// SpecAnswer is the spec in force.
type SpecAnswer struct {
	Version uint64 `json:"version"`
	Text    string `json:"text"`
}

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
