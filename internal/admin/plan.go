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

// PlanOf describes the origin of a plan.
type PlanOf struct {
	Epoch       uint64    `json:"epoch"`
	Term        uint64    `json:"term"`         // Raft term in which it was made
	SpecVersion uint64    `json:"spec_version"` // spec for which it was made
	By          string    `json:"by,omitempty"` // leader that made it; empty: one of an earlier release
	Reason      string    `json:"reason,omitempty"`
	MadeAt      time.Time `json:"made_at,omitzero"` // by the leader's clock
	AgeMS       int64     `json:"age_ms"`           // since the node that answers applied it
	Bytes       int       `json:"bytes"`            // encoded size
	// CostSeconds is the demand-weighted mean cost per token with the plan, and CostBeforeSeconds with the one before it;
	// 0 without demand.
	CostSeconds       float64 `json:"cost_seconds"`
	CostBeforeSeconds float64 `json:"cost_before_seconds"`
}

// PlanAnswer is one plan.
type PlanAnswer struct {
	Node    string `json:"node"` // the node that answered
	InForce bool   `json:"in_force"`
	PlanOf
	Without  []string      `json:"without"` // regions that were drained or unreachable when it was made
	Services []PlanService `json:"services"`
	Notes    []string      `json:"notes,omitempty"`
}

// PlanService is one service's part of a plan.
type PlanService struct {
	Name    string       `json:"name"`
	Mode    string       `json:"mode"`
	Regions []PlanRegion `json:"regions"`
	Cells   int          `json:"cells"`     // number of cells (client areas) in the node's map
	Rows    []PlanRow    `json:"displaced"` // cells that are not assigned to their cheapest region
}

// PlanRegion is a region in a plan, for one service.
type PlanRegion struct {
	Name  string  `json:"name"`
	Wait  float64 `json:"wait_seconds"`
	Price float64 `json:"price_seconds"` // added to the RTT of every client while the region is full
	// Spread is its share of the clients without a known location. Ramp is the share of its traffic that it gets while it
	// recovers, 0..1; 0 means all.
	Spread float64 `json:"spread"`
	Ramp   float64 `json:"ramp,omitempty"`
	Cells  float64 `json:"cells"` // cells assigned to it; a shared cell counts with its share
}

// PlanRow splits one cell's clients among regions.
type PlanRow struct {
	Cell   string      `json:"cell"`
	Shares []PlanShare `json:"shares"` // of the clients that are not pinned
	// Pinned are heavy-hitter client networks, each assigned to one region.
	Pinned []PlanPin `json:"pinned,omitempty"`
}

// PlanPin assigns one client network to a region.
type PlanPin struct {
	Network string `json:"network"`
	Region  string `json:"region"`
}

// PlanShare is the share of one region.
type PlanShare struct {
	Region string  `json:"region"`
	Share  float64 `json:"share"` // 0..1
}

// PlanDiffAnswer compares two plans, both evaluated with the current spec and map.
type PlanDiffAnswer struct {
	Node     string            `json:"node"`
	From     PlanOf            `json:"from"`
	To       PlanOf            `json:"to"`
	Services []PlanServiceDiff `json:"services"` // those that differ
	Without  []string          `json:"without"`  // regions excluded in To and not in From
	With     []string          `json:"with"`     // regions excluded in From and not in To
}

// PlanServiceDiff contains the differences for one service.
type PlanServiceDiff struct {
	Name    string           `json:"name"`
	Regions []PlanRegionDiff `json:"regions"` // with a different price, wait or spread
	Cells   []PlanCellDiff   `json:"cells"`   // with different shares, the largest moves first
	Moved   int              `json:"cells_moved"`
}

// PlanRegionDiff contains the differences of one region.
type PlanRegionDiff struct {
	From PlanRegion `json:"from"`
	To   PlanRegion `json:"to"`
}

// PlanCellDiff contains the differences of one cell.
type PlanCellDiff struct {
	Cell  string      `json:"cell"`
	From  []PlanShare `json:"from"`
	To    []PlanShare `json:"to"`
	Moved float64     `json:"moved"` // share of its clients, 0..1
}

// PlanHistoryAnswer lists the plans that the node received since it started, the newest first. Raft stores only the newest
// plan.
type PlanHistoryAnswer struct {
	Node  string         `json:"node"`
	Plans []PlanMovement `json:"plans"`
	Kept  int            `json:"kept"` // maximum number of plans that the node stores
}

// PlanMovement is one plan and what it moved compared with the one before it.
type PlanMovement struct {
	PlanOf
	First bool `json:"first"` // the oldest stored plan, with no plan to compare it with
	Cells int  `json:"cells_moved"`
	// Share is the share of clients that moved, 0..1, with equal weights for each service and cell.
	Share float64 `json:"share_moved"`
}

// planCalls adapts the calls about plans to numbers from the query; nil for those that the tier does not support.
func (b *Backend) planCalls() (show func(context.Context, []uint64) (*PlanAnswer, error), diff func(context.Context, []uint64) (*PlanDiffAnswer, error), history func(context.Context, []uint64) (*PlanHistoryAnswer, error)) {
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

// numbersRoute returns a read call with optional numbers in the query.
func numbersRoute[A any](path, summary string, params []string, call func(context.Context, []uint64) (*A, error)) apiRoute {
	return apiRoute{
		method: http.MethodGet, path: path, summary: summary, minRole: RoleViewer, params: params, optional: true, out: *new(A),
		serve: func(w http.ResponseWriter, r *http.Request, _ string) {
			if call == nil {
				writeError(w, notSupportedHere())
				return
			}
			numbers, err := parseNumbers(r.URL.Query(), params)
			if err != nil {
				writeError(w, err)
				return
			}
			out, err := call(r.Context(), numbers)
			writeAnswer(w, out, err)
		},
	}
}

// parseNumbers parses the params in order. A missing one is 0.
func parseNumbers(q url.Values, params []string) ([]uint64, error) {
	out := make([]uint64, len(params))
	for i, name := range params {
		text := q.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, BadRequestError(fmt.Sprintf("%s %q is not a number", name, text), "write one such as "+name+"=17")
		}
		out[i] = n
	}
	return out, nil
}

// GetPlan returns a plan. Epoch 0 is the one in force.
func (c *Client) GetPlan(ctx context.Context, epoch uint64) (*PlanAnswer, error) {
	return callNode[PlanAnswer](ctx, c, http.MethodGet, pathPlan+"?epoch="+strconv.FormatUint(epoch, 10), nil)
}

// GetPlanDiff compares two plans. See Backend.PlanDiff for 0.
func (c *Client) GetPlanDiff(ctx context.Context, from, to uint64) (*PlanDiffAnswer, error) {
	q := fmt.Sprintf("?from=%d&to=%d", from, to)
	return callNode[PlanDiffAnswer](ctx, c, http.MethodGet, pathPlanDiff+q, nil)
}

// GetPlanHistory returns the newest plans. Limit 0 means all that the node stores.
func (c *Client) GetPlanHistory(ctx context.Context, limit uint64) (*PlanHistoryAnswer, error) {
	return callNode[PlanHistoryAnswer](ctx, c, http.MethodGet, pathPlanHistory+"?limit="+strconv.FormatUint(limit, 10), nil)
}
