package admin

import (
	"context"
	"net/http"
)

const pathQueue = "/v1/queue"

// QueueAnswer describes who waits in one local instance, model by model.
type QueueAnswer struct {
	Node   string       `json:"node"` // region/zone/instance
	Models []QueueModel `json:"models"`
}

// QueueModel is one model's queue.
type QueueModel struct {
	Model           string       `json:"model"`
	Waiting         int          `json:"waiting"`
	MaxWaiting      int          `json:"max_waiting"`
	Bytes           int64        `json:"bytes"` // of the waiting requests' bodies
	MaxBytes        int64        `json:"max_bytes"`
	DrainRate       float64      `json:"drain_tokens_per_second"` // prompt tokens, while something waited
	Saturation      float64      `json:"saturation"`              // 1: full, or a class waits as long as its target
	ShedProbability float64      `json:"shed_probability"`        // of a new batch request
	Panic           bool         `json:"panic"`                   // so few workers are left that doubts about them no longer count
	Classes         []QueueClass `json:"classes"`                 // the most urgent first
}

// QueueClass is one class of a QueueModel.
type QueueClass struct {
	Class       string            `json:"class"`
	Weight      float64           `json:"weight"` // raised by the age of the oldest request
	Waiting     int               `json:"waiting"`
	Running     int               `json:"running"`
	Tokens      int64             `json:"tokens"` // prompt tokens that wait
	Bytes       int64             `json:"bytes"`
	OldestMS    int64             `json:"oldest_ms"`
	WaitMS      int64             `json:"wait_ms"` // predicted for a new request; -1 when nothing has drained yet
	Passed      uint64            `json:"passed"`  // entered without waiting, since the start
	Taken       uint64            `json:"taken"`   // entered after waiting
	Gone        uint64            `json:"gone"`    // left while they waited: clients that left or were late, and the evicted
	Evicted     uint64            `json:"evicted"` // made room for somebody more urgent or with less waiting
	Refused     map[string]uint64 `json:"refused,omitempty"`
	Tenants     []QueueTenant     `json:"tenants"`
	TenantCount int               `json:"tenant_count"` // also of those not listed
}

// QueueTenant is one tenant of a QueueClass.
type QueueTenant struct {
	Tenant       string  `json:"tenant"`
	Waiting      int     `json:"waiting"`
	Running      int     `json:"running"`
	Tokens       int64   `json:"tokens"`
	Bytes        int64   `json:"bytes"`
	AheadSeconds float64 `json:"ahead_gpu_seconds"` // of GPU time that it has had more than who has had the least
	NextDueMS    int64   `json:"next_due_ms"`       // negative: overdue
}

// Queue asks a local instance who waits.
func (c *Client) Queue(ctx context.Context) (*QueueAnswer, error) {
	return call[QueueAnswer](ctx, c, http.MethodGet, pathQueue, nil)
}
