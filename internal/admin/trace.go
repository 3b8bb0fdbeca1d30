package admin

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/decision"
	"github.com/spillway-lb/spillway/internal/explain"
)

const (
	pathTrace = "/v1/trace"
	// QueryTrace is the query for what a child and the tiers below it have recorded about a request. The payload is a TraceQuery,
	// the answer a TraceAnswer.
	QueryTrace = "trace"
	// paramRequest is the parameter with the id of a request.
	paramRequest = "request"
	// maxTraceSteps bounds the steps of an answer. Clients may send the same id many times.
	maxTraceSteps = 200
)

// TraceQuery asks for what is recorded about a request.
type TraceQuery struct {
	RequestID string `json:"request_id"`
}

// TraceAnswer is what the asked nodes have recorded about a request.
type TraceAnswer struct {
	RequestID string      `json:"request_id"`
	Steps     []TraceStep `json:"steps"` // by time
	Nodes     []TraceNode `json:"nodes"` // that were asked
}

// TraceStep is one record: a choice, a refusal, or the end of an attempt or, at a gateway, of the request.
type TraceStep struct {
	Tier             string              `json:"tier"` // "regional" or "local"
	Node             string              `json:"node"`
	Event            string              `json:"event"` // "choice", "refused" or "end"
	At               time.Time           `json:"at"`
	Tenant           string              `json:"tenant,omitempty"`
	Model            string              `json:"model,omitempty"`
	Class            string              `json:"class,omitempty"`
	PromptTokens     int64               `json:"prompt_tokens,omitempty"` // of an end: as reported, otherwise as estimated
	OutputTokens     int64               `json:"output_tokens,omitempty"`
	CachedTokens     int64               `json:"cached_tokens,omitempty"`
	WaitedSeconds    float64             `json:"waited_seconds,omitempty"` // in the queue
	Policy           string              `json:"policy,omitempty"`
	Considered       int                 `json:"considered,omitempty"` // number of candidates, of which the best are listed
	Candidates       []explain.Candidate `json:"candidates,omitempty"`
	Chosen           string              `json:"chosen,omitempty"`
	Reason           string              `json:"reason,omitempty"`
	PredictedTTFT    float64             `json:"predicted_ttft_seconds,omitempty"`
	Outcome          string              `json:"outcome,omitempty"`
	Status           int                 `json:"status,omitempty"`
	Attempts         int                 `json:"attempts,omitempty"`
	FirstByteSeconds float64             `json:"first_byte_seconds,omitempty"`
	Seconds          float64             `json:"seconds,omitempty"`
}

// TraceNode is a node that was asked.
type TraceNode struct {
	Tier    string    `json:"tier"`
	Node    string    `json:"node"`
	Off     bool      `json:"off,omitempty"`   // it keeps no decisions
	Records int       `json:"records"`         // kept, of all requests
	Oldest  time.Time `json:"oldest,omitzero"` // the oldest record that it keeps
	Error   string    `json:"error,omitempty"` // why it did not answer
	Now     time.Time `json:"now,omitzero"`    // by its clock
}

// NewTraceAnswer returns the answer of one node.
func NewTraceAnswer(tier, node, id string, found *decision.Found, off bool) *TraceAnswer {
	out := &TraceAnswer{
		RequestID: id, Steps: []TraceStep{},
		Nodes: []TraceNode{{Tier: tier, Node: node, Off: off, Records: found.Searched, Oldest: found.Oldest, Now: time.Now().UTC()}},
	}
	for i := range found.Records {
		out.Steps = append(out.Steps, newTraceStep(tier, node, &found.Records[i]))
	}
	return out
}

// UnansweredTrace returns the answer for a node that did not answer.
func UnansweredTrace(tier, node string, err error) *TraceAnswer {
	return &TraceAnswer{Nodes: []TraceNode{{Tier: tier, Node: node, Error: err.Error()}}}
}

func newTraceStep(tier, node string, r *decision.Record) TraceStep {
	out := TraceStep{
		Tier: tier, Node: node, Event: r.Event.String(), At: r.At, Tenant: r.Tenant, Model: r.Model, Class: r.Class,
		PromptTokens: r.PromptTokens, OutputTokens: r.OutputTokens, CachedTokens: r.CachedTokens, WaitedSeconds: r.Waited.Seconds(),
		Policy: r.Policy, Considered: r.Considered, Chosen: r.Chosen, Reason: r.Reason, PredictedTTFT: r.PredictedTTFT,
		Outcome: r.Outcome, Status: r.Status, Attempts: r.Attempts, FirstByteSeconds: r.FirstByte.Seconds(), Seconds: r.Duration.Seconds(),
	}
	for i := range r.Candidates {
		out.Candidates = append(out.Candidates, r.Candidates[i].Explain())
	}
	return out
}

// MergeAnswer adds the answer of another node.
func (a *TraceAnswer) MergeAnswer(b *TraceAnswer) {
	a.Nodes = append(a.Nodes, b.Nodes...)
	a.Steps = append(a.Steps, b.Steps...)
	slices.SortStableFunc(a.Steps, func(x, y TraceStep) int { return x.At.Compare(y.At) })
	if n := len(a.Steps); n > maxTraceSteps {
		a.Steps = a.Steps[n-maxTraceSteps:]
	}
}

// traceRoute returns the call with the id of a request in the query.
func traceRoute(summary string, call func(context.Context, TraceQuery) (*TraceAnswer, error)) apiRoute {
	return apiRoute{
		method: http.MethodGet, path: pathTrace, summary: summary, minRole: RoleViewer, params: []string{paramRequest}, out: TraceAnswer{},
		serve: func(w http.ResponseWriter, r *http.Request, _ string) {
			id := r.URL.Query().Get(paramRequest)
			switch {
			case call == nil:
				writeError(w, notSupportedHere())
			case id == "":
				writeError(w, BadRequestError("no request is named", "add ?"+paramRequest+"=ID with the X-Request-Id of a response"))
			default:
				out, err := call(r.Context(), TraceQuery{RequestID: id})
				writeAnswer(w, out, err)
			}
		},
	}
}
