package admin

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	pathPlan        = "/v1/plan"
	pathPlanDiff    = "/v1/plan/diff"
	pathPlanHistory = "/v1/plan/history"
)

// PlanOf says where a plan comes from.
type PlanOf struct {
	Epoch       uint64    `json:"epoch"`
	Term        uint64    `json:"term"`         // of Raft, in which it was made
	SpecVersion uint64    `json:"spec_version"` // the spec that it was made for
	By          string    `json:"by,omitempty"` // the leader that made it; empty: one of an earlier release
	Reason      string    `json:"reason,omitempty"`
	MadeAt      time.Time `json:"made_at,omitzero"` // by that leader's clock
	AgeMS       int64     `json:"age_ms"`           // since the node asked took it
	Bytes       int       `json:"bytes"`            // encoded
	// CostSeconds is the demand-weighted mean cost per token under the plan, and CostBeforeSeconds under the one before
	// it; 0 without demand.
	CostSeconds       float64 `json:"cost_seconds"`
	CostBeforeSeconds float64 `json:"cost_before_seconds"`
}

// PlanAnswer is one plan.
type PlanAnswer struct {
	Node    string `json:"node"` // who was asked
	InForce bool   `json:"in_force"`
	PlanOf
	Without  []string      `json:"without"` // regions that were drained or lost when it was made
	Services []PlanService `json:"services"`
	Notes    []string      `json:"notes,omitempty"`
}

// PlanService is one service's part of a plan.
type PlanService struct {
	Name    string       `json:"name"`
	Mode    string       `json:"mode"`
	Regions []PlanRegion `json:"regions"`
	Cells   int          `json:"cells"`     // that the node's map has
	Rows    []PlanRow    `json:"displaced"` // cells that do not simply go to their cheapest region
}

// PlanRegion is what a plan says of a region for one service.
type PlanRegion struct {
	Name  string  `json:"name"`
	Wait  float64 `json:"wait_seconds"`
	Price float64 `json:"price_seconds"` // what a full region adds
	// Spread is its part of the clients of no known place, and Ramp of what it may get on its way back, 0..1; Ramp 0: all.
	Spread float64 `json:"spread"`
	Ramp   float64 `json:"ramp,omitempty"`
	Cells  float64 `json:"cells"` // how many of the cells it serves; parts of cells are counted as such
}

// PlanRow splits one cell's clients among regions.
type PlanRow struct {
	Cell   string      `json:"cell"`
	Shares []PlanShare `json:"shares"` // of the clients that are not pinned
	// Pinned are the client networks that ask for so much of the cell that each is sent to a region by name.
	Pinned []PlanPin `json:"pinned,omitempty"`
}

// PlanPin is one client network and where it is sent.
type PlanPin struct {
	Network string `json:"network"`
	Region  string `json:"region"`
}

// PlanShare is one region's part.
type PlanShare struct {
	Region string  `json:"region"`
	Share  float64 `json:"share"` // 0..1
}

// PlanDiffAnswer says what moved between two plans, both read with the spec and the map in use now.
type PlanDiffAnswer struct {
	Node     string            `json:"node"`
	From     PlanOf            `json:"from"`
	To       PlanOf            `json:"to"`
	Services []PlanServiceDiff `json:"services"` // those that differ
	Without  []string          `json:"without"`  // regions that To does without and From did not
	With     []string          `json:"with"`     // and the other way round
}

// PlanServiceDiff is what differs for one service.
type PlanServiceDiff struct {
	Name    string           `json:"name"`
	Regions []PlanRegionDiff `json:"regions"` // whose price, wait or spread differs
	Cells   []PlanCellDiff   `json:"cells"`   // whose clients are answered otherwise, the largest moves first
	Moved   int              `json:"cells_moved"`
}

// PlanRegionDiff is what differs for one region.
type PlanRegionDiff struct {
	From PlanRegion `json:"from"`
	To   PlanRegion `json:"to"`
}

// PlanCellDiff is what differs for one cell.
type PlanCellDiff struct {
	Cell  string      `json:"cell"`
	From  []PlanShare `json:"from"`
	To    []PlanShare `json:"to"`
	Moved float64     `json:"moved"` // part of its clients, 0..1
}

// PlanHistoryAnswer lists plans, the newest first. It is what the node asked has seen since it started: Raft keeps the
// newest plan alone.
type PlanHistoryAnswer struct {
	Node  string         `json:"node"`
	Plans []PlanMovement `json:"plans"`
	Kept  int            `json:"kept"` // how many the node remembers at most
}

// PlanMovement is one plan and what it moved against the one before it.
type PlanMovement struct {
	PlanOf
	First bool `json:"first"` // the oldest that is remembered: there is nothing to compare it with
	Cells int  `json:"cells_moved"`
	// Share is the part of all cells' clients that moved, each service and cell counting alike, 0..1.
	Share float64 `json:"share_moved"`
}

// plans are the calls as numbers of the query make them; nil for those that the tier does not have.
func (b *Backend) plans() (show func(context.Context, []uint64) (*PlanAnswer, error), diff func(context.Context, []uint64) (*PlanDiffAnswer, error), history func(context.Context, []uint64) (*PlanHistoryAnswer, error)) {
	if b.Plan != nil {
		show = func(ctx context.Context, n []uint64) (*PlanAnswer, error) { return b.Plan(ctx, n[0]) }
	}
	if b.PlanDiff != nil {
		diff = func(ctx context.Context, n []uint64) (*PlanDiffAnswer, error) { return b.PlanDiff(ctx, n[0], n[1]) }
	}
	if b.PlanHistory != nil {
		history = func(ctx context.Context, n []uint64) (*PlanHistoryAnswer, error) { return b.PlanHistory(ctx, n[0]) }
	}
	return show, diff, history
}

// numbered is a call that changes nothing and takes numbers, each of which may be left out, in the query.
func numbered[A any](path, summary string, params []string, call func(context.Context, []uint64) (*A, error)) route {
	return route{
		method: http.MethodGet, path: path, summary: summary, needs: Viewer, params: params, optional: true, out: *new(A),
		serve: func(w http.ResponseWriter, r *http.Request, _ string) {
			if call == nil {
				writeError(w, notHere())
				return
			}
			numbers, err := numbersOf(r.URL.Query(), params)
			if err != nil {
				writeError(w, err)
				return
			}
			out, err := call(r.Context(), numbers)
			answer(w, out, err)
		},
	}
}

// numbersOf reads the params in order; what is left out is 0.
func numbersOf(q url.Values, params []string) ([]uint64, error) {
	out := make([]uint64, len(params))
	for i, name := range params {
		text := q.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, BadRequest(fmt.Sprintf("%s %q is not a number", name, text), "write one such as "+name+"=17")
		}
		out[i] = n
	}
	return out, nil
}

// Plan asks for a plan; epoch 0 is the one in force.
func (c *Client) Plan(ctx context.Context, epoch uint64) (*PlanAnswer, error) {
	return call[PlanAnswer](ctx, c, http.MethodGet, pathPlan+"?epoch="+strconv.FormatUint(epoch, 10), nil)
}

// PlanDiff asks what moved between two plans; see Backend.PlanDiff for 0.
func (c *Client) PlanDiff(ctx context.Context, from, to uint64) (*PlanDiffAnswer, error) {
	q := fmt.Sprintf("?from=%d&to=%d", from, to)
	return call[PlanDiffAnswer](ctx, c, http.MethodGet, pathPlanDiff+q, nil)
}

// PlanHistory asks for the newest plans; limit 0 means all that the node remembers.
func (c *Client) PlanHistory(ctx context.Context, limit uint64) (*PlanHistoryAnswer, error) {
	return call[PlanHistoryAnswer](ctx, c, http.MethodGet, pathPlanHistory+"?limit="+strconv.FormatUint(limit, 10), nil)
}
