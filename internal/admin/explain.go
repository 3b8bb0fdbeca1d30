package admin

import "github.com/spillway-lb/spillway/internal/explain"

// The kinds of queries that a parent sends to a child over the uplink.
const (
	QueryStatus  = "status"  // empty payload; the answer is a RegionStatus or a ZoneStatus
	QueryExplain = "explain" // the payload is an ExplainQuery; the answer is []explain.Explanation, nearest tier first
)

// ExplainQuery describes a hypothetical request whose routing decisions are explained.
type ExplainQuery struct {
	From         string              `json:"from"`    // the client's address, or a prefix
	Service      string              `json:"service"` // empty: the only service, or the first that serves the model
	Model        string              `json:"model"`   // model or alias
	Tenant       string              `json:"tenant,omitempty"`
	Class        string              `json:"class,omitempty"`
	Session      string              `json:"session,omitempty"` // session of the request; empty: none
	Target       string              `json:"target,omitempty"`  // required target of an alias; empty: none
	Headers      map[string][]string `json:"headers,omitempty"` // canonical headers of the request, for conditions of targets
	PromptTokens int64               `json:"prompt_tokens,omitempty"`
	MaxTokens    int64               `json:"max_tokens,omitempty"`
}

// ExplainAnswer contains one explanation for each decision, in the order of a request's path.
type ExplainAnswer struct {
	Records []explain.Explanation `json:"records"`
}
