package admin

import (
	"time"

	"github.com/spillway-lb/spillway/internal/explain"
)

// The kinds of question that a parent asks a child over the uplink.
const (
	AskStatus  = "status"  // payload empty; answered with a RegionStatus or a ZoneStatus
	AskExplain = "explain" // payload ExplainQuery; answered with []explain.Record, nearest tier first
)

// ExplainQuery describes a request that nobody sent, so that the decisions it would meet can be replayed.
type ExplainQuery struct {
	From         string              `json:"from"`    // the client's address, or a prefix
	Service      string              `json:"service"` // empty: the only service, or the first that serves the model
	Model        string              `json:"model"`   // model or alias
	Tenant       string              `json:"tenant,omitempty"`
	Class        string              `json:"class,omitempty"`
	Session      string              `json:"session,omitempty"` // what the request names as its session; empty: nothing
	Target       string              `json:"target,omitempty"`  // what it pins an alias to; empty: nothing
	Headers      map[string][]string `json:"headers,omitempty"` // of the request, canonical, for conditions
	PromptTokens int64               `json:"prompt_tokens,omitempty"`
	MaxTokens    int64               `json:"max_tokens,omitempty"`
}

// ExplainAnswer holds one record for each decision, in the order a request would meet them.
type ExplainAnswer struct {
	Records []explain.Record `json:"records"`
}

// ApplyRequest asks for a new spec.
type ApplyRequest struct {
	Name    string `json:"name"`              // the file's name, for error messages
	Text    string `json:"text"`              // the spec as YAML
	BasedOn uint64 `json:"based_on"`          // the version it replaces; 0 means whatever is in force
	DryRun  bool   `json:"dry_run,omitempty"` // say what would happen and change nothing
	Reason  string `json:"reason,omitempty"`  // why, for the audit

	// With Stage or Guard the spec is on trial first: in the regions of Stage, or everywhere.
	Stage   []string `json:"stage,omitempty"`
	ForMS   int64    `json:"for_ms,omitempty"`  // then it is promoted; 0: when somebody says so
	Guard   string   `json:"guard,omitempty"`   // what takes it back, such as "error_rate<2%,ttft_p99<1.5x"
	Replace bool     `json:"replace,omitempty"` // of what is on trial
}

// ApplyAnswer says what changed, or with DryRun what would.
type ApplyAnswer struct {
	Version uint64   `json:"version"` // in force after the call
	DryRun  bool     `json:"dry_run"`
	Changes []Change `json:"changes"`
	Moves   []Move   `json:"moves"`
	Replay  *Replay  `json:"replay,omitempty"` // of a dry run
	// Stage is what is on trial after the call, or with DryRun what would be; Moves then come with its promotion.
	Stage *StageStatus `json:"stage,omitempty"`
}

// Replay is what the demand of the last minutes would have met under a new spec, beside the one in force. Both are solved
// afresh for each minute, on the capacity and with the waits of now: a wait does not grow with the load that moves.
type Replay struct {
	Minutes  int             `json:"minutes"` // of observed demand that were replayed, 15 at most; 0: none was seen
	Services []ReplayService `json:"services"`
	Notes    []string        `json:"notes,omitempty"`
}

// ReplayService sums up one service.
type ReplayService struct {
	Service    string  `json:"service"`
	Moved      float64 `json:"moved"`       // part of its demand that another region would serve, 0..1
	Cells      int     `json:"cells"`       // with demand
	CellsMoved int     `json:"cells_moved"` // some of whose clients would move
	// P50Before and P50After are the median over its demand of RTT and predicted wait, in seconds; 0 without demand from
	// known places.
	P50Before float64 `json:"p50_seconds_before"`
	P50After  float64 `json:"p50_seconds_after"`
	// QuietCells had no demand of late, and QuietCellsMoved of them would move.
	QuietCells      int `json:"quiet_cells"`
	QuietCellsMoved int `json:"quiet_cells_moved"`
}

// Change is one line of a spec diff.
type Change struct {
	Path string `json:"path"`
	From string `json:"from"`
	To   string `json:"to"`
}

// Move is one group of clients that a new spec would serve elsewhere.
type Move struct {
	Service string  `json:"service"`
	Cell    string  `json:"cell"`
	From    string  `json:"from"`
	To      string  `json:"to"`
	Share   float64 `json:"share"`           // of the service's demand, or of its cells where no demand was seen, 0..1
	Quiet   bool    `json:"quiet,omitempty"` // no demand was seen for the service: each cell counts alike
}

// SpecAnswer is the spec in force.
type SpecAnswer struct {
	Version uint64 `json:"version"`
	Text    string `json:"text"`
}

// Drain is one drain in force.
type Drain struct {
	Path   string    `json:"path"`            // region, region/zone or region/zone/worker
	Until  time.Time `json:"until,omitzero"`  // zero: until undrained
	Reason string    `json:"reason,omitzero"` // the operator's words
	Actor  string    `json:"actor,omitzero"`  // who asked
	At     time.Time `json:"at,omitzero"`     // when the leader took it
}

// DrainRequest asks that a region, zone or worker takes nothing new.
type DrainRequest struct {
	Path   string `json:"path"`
	ForMS  int64  `json:"for_ms,omitempty"` // 0: until undrained
	Reason string `json:"reason,omitempty"`

	DryRun  bool `json:"dry_run,omitempty"` // say what would be left and change nothing
	Force   bool `json:"force,omitempty"`   // drain even if less is left than the spec demands
	Replace bool `json:"replace,omitempty"` // put it in place of a drain of the same path
}

// CheckDrained refuses to put a drain in place of one in force, unless the request asks for that.
func CheckDrained(drains []Drain, r DrainRequest, now time.Time) error {
	if r.Replace {
		return nil
	}
	for _, d := range drains {
		if d.Path != r.Path || !d.Until.IsZero() && !now.Before(d.Until) {
			continue
		}
		text := r.Path + " is drained already, until it is undrained"
		if !d.Until.IsZero() {
			text = r.Path + " is drained already, until " + d.Until.UTC().Format(time.RFC3339)
		}
		if d.Actor != "" {
			text += ", by " + d.Actor
		}
		if d.Reason != "" {
			text += ": " + d.Reason
		}
		return Conflict(text, "--replace puts the new drain in its place")
	}
	return nil
}

// DrainAnswer lists the drains in force after the call.
type DrainAnswer struct {
	Drains []Drain `json:"drains"`
	Note   string  `json:"note,omitempty"` // "every region is drained: clients are still answered"
	// Impact is what the drain leaves; nil in answers to other calls.
	Impact *DrainImpact `json:"impact,omitempty"`
}

// DrainImpact is what takes traffic before and after a drain.
type DrainImpact struct {
	Regions     int          `json:"regions"`
	RegionsLeft int          `json:"regions_left"`
	Zones       int          `json:"zones,omitempty"` // of the region, where a zone or a worker is drained
	ZonesLeft   int          `json:"zones_left,omitempty"`
	Models      []DrainModel `json:"models"`
	// Below says which minimum of the spec the drain falls below. It is then refused unless forced.
	Below []string `json:"below,omitempty"`
}

// DrainModel is the capacity for one model over all regions.
type DrainModel struct {
	Name        string  `json:"name"`
	Workers     int64   `json:"workers"` // ready
	WorkersLeft int64   `json:"workers_left"`
	Rate        float64 `json:"prefill_tokens_per_second"`
	RateLeft    float64 `json:"prefill_tokens_per_second_left"`
	Demand      float64 `json:"demand_tokens_per_second"`
	// WaitSeconds and WaitLeftSeconds are the mean queue waits predicted from demand and capacity; -1: demand exceeds it.
	WaitSeconds     float64 `json:"wait_seconds"`
	WaitLeftSeconds float64 `json:"wait_left_seconds"`
}

// Error is what a failed call is told: what went wrong and what to do next.
type Error struct {
	Status  int    `json:"-"` // HTTP status
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// Error is the message, with the hint where there is one.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "\nhint: " + e.Hint
}
