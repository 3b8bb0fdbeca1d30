package relay

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/openai"
)

const (
	// DefaultBodyMemory bounds the request bodies in one process when nothing else is configured, in bytes.
	DefaultBodyMemory = 1 << 30
	// ownerShare is the part of it that one tenant may hold, so that one cannot keep the others out.
	ownerShare = 0.5
	// bodyMemoryRetry is when a client that is refused for want of it should try again: bodies are held for as long as their
	// answers take to begin, or to end.
	bodyMemoryRetry = 2 * time.Second
)

// errBodyMemory means that a body found no room in memory while it was read.
var errBodyMemory = errors.New("the memory for request bodies is full")

// BodyMemory counts the bytes of request bodies that one process holds, and bounds them. The nil BodyMemory has no bound.
type BodyMemory struct {
	limit int64

	mu      sync.Mutex
	held    int64
	owners  map[string]int64 // those that hold any
	refused uint64
}

// NewBodyMemory makes one of limit bytes; 0 means DefaultBodyMemory.
func NewBodyMemory(limit int64) *BodyMemory {
	if limit <= 0 {
		limit = DefaultBodyMemory
	}
	return &BodyMemory{limit: limit, owners: map[string]int64{}}
}

// Held is how many bytes are held now.
func (m *BodyMemory) Held() int64 { m.mu.Lock(); defer m.mu.Unlock(); return m.held }

// Refused is how many requests were refused since the start because there was no room.
func (m *BodyMemory) Refused() uint64 { m.mu.Lock(); defer m.mu.Unlock(); return m.refused }

// Meters are its metrics, whose names begin with prefix.
func (m *BodyMemory) Meters(prefix string) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "request_body_bytes", Help: "Request bodies in memory."}, func() float64 { return float64(m.Held()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: prefix + "request_body_limit_bytes", Help: "What request bodies may take of the memory together; one tenant's may take half of it."},
			func() float64 { return float64(m.limit) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{Name: prefix + "request_body_refusals_total", Help: "Requests refused with 503 because the memory for request bodies was full."},
			func() float64 { return float64(m.Refused()) }),
	}
}

// Charge begins the account of one request, whose tenant is owner.
func (m *BodyMemory) Charge(owner string) BodyCharge { return BodyCharge{m: m, owner: owner} }

// BodyCharge is what one request holds of a BodyMemory. The zero BodyCharge is of none. It must not be copied once it holds
// something.
type BodyCharge struct {
	m     *BodyMemory
	owner string
	n     int64
}

// Take takes n bytes; false when there is no room for them.
func (c *BodyCharge) Take(n int64) bool {
	m := c.m
	if m == nil || n <= 0 {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held+n > m.limit || m.owners[c.owner]+n > int64(ownerShare*float64(m.limit)) {
		return false
	}
	m.held += n
	m.owners[c.owner] += n
	c.n += n
	return true
}

// Release gives back all that the request holds.
func (c *BodyCharge) Release() {
	m := c.m
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held -= c.n
	if m.owners[c.owner] -= c.n; m.owners[c.owner] <= 0 {
		delete(m.owners, c.owner)
	}
	c.n = 0
}

// refuse counts a refusal and is the answer to it.
func (c *BodyCharge) refuse() *openai.Error {
	c.m.mu.Lock()
	c.m.refused++
	c.m.mu.Unlock()
	return openai.BodyMemory(bodyMemoryRetry)
}

// charged is a body of unknown length, which takes memory as it is read.
type charged struct {
	io.Reader
	c *BodyCharge
}

// Read implements io.Reader.
func (r charged) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if !r.c.Take(int64(n)) {
		return 0, errBodyMemory
	}
	return n, err
}
