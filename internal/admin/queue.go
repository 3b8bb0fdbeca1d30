package admin

import (
	"context"
	"net/http"
)

const pathQueue = "/v1/queue"

// QueueAnswer contains the queues of one local instance by model.
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
	DrainRate       float64      `json:"drain_tokens_per_second"` // prompt tokens dispatched per second while requests waited
	Saturation      float64      `json:"saturation"`              // 1: full, or a class waits as long as its target
	ShedProbability float64      `json:"shed_probability"`        // probability that a new batch request is rejected
	Panic           bool         `json:"panic"`                   // so few workers are healthy that ejected ones are used too
	Classes         []QueueClass `json:"classes"`                 // the most urgent first
}

// QueueClass is one class of a QueueModel.
type QueueClass struct {
	Class       string            `json:"class"`
	Weight      float64           `json:"weight"` // raised by the age of the oldest request
	Waiting     int               `json:"waiting"`
	Running     int               `json:"running"`
	Tokens      int64             `json:"tokens"` // waiting prompt tokens
	Bytes       int64             `json:"bytes"`
	OldestMS    int64             `json:"oldest_ms"`
	WaitMS      int64             `json:"wait_ms"` // predicted for a new request; -1 before the first dispatch from the queue
	Passed      uint64            `json:"passed"`  // dispatched without waiting, since the start
	Taken       uint64            `json:"taken"`   // dispatched after waiting
	Gone        uint64            `json:"gone"`    // left the queue: the client disconnected, the deadline passed, or evicted
	Evicted     uint64            `json:"evicted"` // evicted for a more urgent request, or one of a tenant with fewer waiting
	Refused     map[string]uint64 `json:"refused,omitempty"`
	Tenants     []QueueTenant     `json:"tenants"`
	TenantCount int               `json:"tenant_count"` // including those not listed
}

// QueueTenant is one tenant of a QueueClass.
type QueueTenant struct {
	Tenant       string  `json:"tenant"`
	Waiting      int     `json:"waiting"`
	Running      int     `json:"running"`
	Tokens       int64   `json:"tokens"`
	Bytes        int64   `json:"bytes"`
	AheadSeconds float64 `json:"ahead_gpu_seconds"` // GPU time that it got more than the tenant that got the least
	NextDueMS    int64   `json:"next_due_ms"`       // negative: overdue
}

// GetQueue returns the queues of a local instance.
func (c *Client) GetQueue(ctx context.Context) (*QueueAnswer, error) {
	return callNode[QueueAnswer](ctx, c, http.MethodGet, pathQueue, nil)
}
