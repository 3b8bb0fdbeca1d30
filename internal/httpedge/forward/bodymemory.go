package forward

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/openai"
)

const (
	// DefaultBodyMemory bounds the request bodies in one process if nothing else is configured, in bytes.
	DefaultBodyMemory = 1 << 30
	// maxTenantShare is the fraction of it that one tenant may use, so that one tenant cannot block the others.
	maxTenantShare = 0.5
	// bodyMemoryRetry is the Retry-After of a request refused for lack of body memory: bodies are held until
	// their responses begin or end.
	bodyMemoryRetry = 2 * time.Second
)

// errBodyMemoryFull means that the memory for bodies ran out while a body was read.
var errBodyMemoryFull = errors.New("the memory for request bodies is full")

// BodyMemory counts and bounds the bytes of request bodies in one process. The nil BodyMemory has no bound.
type BodyMemory struct {
	limit int64

	mu           sync.Mutex
	heldBytes    int64
	byTenant     map[string]int64 // only tenants that hold any
	refusedCount uint64
}

// NewBodyMemory creates a BodyMemory of limit bytes; 0 means DefaultBodyMemory.
func NewBodyMemory(limit int64) *BodyMemory {
	if limit <= 0 {
		limit = DefaultBodyMemory
	}
	return &BodyMemory{limit: limit, byTenant: map[string]int64{}}
}

// HeldBytes returns the bytes held now.
func (m *BodyMemory) HeldBytes() int64 { m.mu.Lock(); defer m.mu.Unlock(); return m.heldBytes }

// RefusedCount returns how many requests were refused for lack of body memory since the start.
func (m *BodyMemory) RefusedCount() uint64 { m.mu.Lock(); defer m.mu.Unlock(); return m.refusedCount }

// Collectors returns its metrics, with names that begin with prefix.
func (m *BodyMemory) Collectors(prefix string) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "request_body_bytes", Help: "Request bodies in memory."}, func() float64 { return float64(m.HeldBytes()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "request_body_limit_bytes", Help: "Limit of the memory for request bodies in bytes; one tenant may use half of it."},
			func() float64 { return float64(m.limit) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + "request_body_refusals_total", Help: "Requests refused with 503 because the memory for request bodies was full."},
			func() float64 { return float64(m.RefusedCount()) }),
	}
}

// NewCharge returns the charge of one request of the tenant owner.
func (m *BodyMemory) NewCharge(owner string) BodyCharge { return BodyCharge{memory: m, tenant: owner} }

// BodyCharge is the memory that one request holds of a BodyMemory. The zero BodyCharge is unaccounted. It must
// not be copied while it holds bytes.
type BodyCharge struct {
	memory *BodyMemory
	tenant string
	bytes  int64
}

// TakeBytes charges n bytes. It returns false if they do not fit.
func (c *BodyCharge) TakeBytes(n int64) bool {
	m := c.memory
	if m == nil || n <= 0 {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.heldBytes+n > m.limit || m.byTenant[c.tenant]+n > int64(maxTenantShare*float64(m.limit)) {
		return false
	}
	m.heldBytes += n
	m.byTenant[c.tenant] += n
	c.bytes += n
	return true
}

// ReleaseBytes releases all bytes of the request.
func (c *BodyCharge) ReleaseBytes() {
	m := c.memory
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heldBytes -= c.bytes
	if m.byTenant[c.tenant] -= c.bytes; m.byTenant[c.tenant] <= 0 {
		delete(m.byTenant, c.tenant)
	}
	c.bytes = 0
}

// refuseBody counts a refusal and returns its error.
func (c *BodyCharge) refuseBody() *openai.Error {
	c.memory.mu.Lock()
	c.memory.refusedCount++
	c.memory.mu.Unlock()
	return openai.BodyMemoryFull(bodyMemoryRetry)
}
