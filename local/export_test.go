package local

import (
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/pick"
)

// RetryBurst bounds the retries that may be saved up.
const RetryBurst = retryBurst

// Riding counts the requests for a model that are on its bus.
func (a *Agent) Riding(model string) int {
	return int(testutil.ToFloat64(a.batcher.riding.WithLabelValues(model)))
}

// SpendAll takes every retry that is saved up.
func (a *Agent) SpendAll() {
	a.floor.mu.Lock()
	defer a.floor.mu.Unlock()
	a.floor.budget = -1000
}

// SpecVersion is the version of the spec in force.
func (a *Agent) SpecVersion() uint64 { return a.policy.Load().specVersion }

// KnowsPrefix says whether a tenant's request would find its prompt's beginning cached on some worker.
func (a *Agent) KnowsPrefix(tenant, model, body string) bool {
	v := &visit{r: &http.Request{URL: pathURL(openai.PathChat), Header: http.Header{}}, model: model, estimate: 1000, excluded: [2]int32{-1, -1}}
	v.hop.Tenant = tenant
	if openai.Scan([]byte(body), &v.env) != nil {
		return false
	}
	a.floor.mu.Lock()
	defer a.floor.mu.Unlock()
	p := a.floor.pools[model]
	a.floor.fit(v, p)
	choice, ok := pick.Choose(&v.query, p.view, time.Now(), a.floor.rng, nil)
	return ok && choice.Cached > 0
}

// Believed is how much of a prompt its only worker is believed to have cached, in tokens of four bytes.
func (a *Agent) Believed(body string) int64 {
	v := &visit{r: &http.Request{URL: pathURL(openai.PathChat), Header: http.Header{}}, excluded: [2]int32{-1, -1}}
	v.hop.Tenant = "default"
	if err := openai.Scan([]byte(body), &v.env); err != nil {
		panic(err)
	}
	v.model = v.env.Model
	a.floor.mu.Lock()
	defer a.floor.mu.Unlock()
	p := a.floor.pools[v.model]
	a.floor.fit(v, p)
	v.query.PromptTokens = v.query.PromptBytes / 4
	d, _ := pick.Look(&v.query, p.view, time.Now(), a.floor.rng, nil)
	return d.Cached
}

// Hits is the sum of all tokens of prompts, and of those believed too much and too little to be cached.
func (a *Agent) Hits(exact bool) (prompt, over, under float64) {
	a.floor.mu.Lock()
	defer a.floor.mu.Unlock()
	h := a.floor.hits[0]
	if exact {
		h = a.floor.hits[1]
	}
	return h.prompt, h.over, h.under
}

// Linked is how many of our own blocks are known to be in a worker's cache by its events.
func (a *Agent) Linked(worker string) int {
	a.floor.mu.Lock()
	defer a.floor.mu.Unlock()
	_, ours, _ := a.floor.index.Mirrored(a.floor.workers[worker].id)
	return ours
}

// Claimed is what became of the prompts that were looked for among a worker's events.
func (a *Agent) Claimed(worker string) map[string]uint64 {
	a.floor.mu.Lock()
	defer a.floor.mu.Unlock()
	m := map[string]uint64{}
	for o, n := range a.floor.index.Claimed(a.floor.workers[worker].id) {
		m[pick.Outcome(o).String()] = n
	}
	return m
}

// Sighting is a sibling's answer, and ReadSighting decodes one.
type Sighting = sighting

func ReadSighting(r io.Reader) (*Sighting, error) { return readSighting(r) }

// Queues describes the queues, as an operator sees them.
func (a *Agent) Queues() []admin.QueueModel { return a.floor.queues(shownTenants, time.Now()) }

// Declare replaces the declared workers.
func (a *Agent) Declare(list []discover.Worker) { a.setWorkers(list) }
