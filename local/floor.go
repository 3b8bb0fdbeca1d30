package local

import (
	mrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/poison"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/internal/route"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
	"github.com/spillway-lb/spillway/local/warm"
)

// maxLengths bounds the places of the prediction of answers' lengths, about 300 bytes each.
const maxLengths = 8192

// maxDialects bounds the addresses whose engines are remembered.
const maxDialects = 1024

// maxPools bounds the models of one zone.
const maxPools = capacity.MaxModels

// floor is the zone's state under one lock: workers, ledger, prefix index, and a pool (view and queue) for each model.
// What is decided on it is decided by the pure packages, in microseconds.
type floor struct {
	mu       sync.Mutex
	cfg      Config
	rng      *mrand.Rand
	secret   uint64 // seeds prefix hashes, so that nobody outside can aim for a collision
	ledger   *pick.Ledger
	index    *pick.Index
	lengths  *pick.Lengths
	workers  map[string]*worker
	leaving  map[*worker]struct{} // no longer declared, with answers under way
	pools    map[string]*pool
	orders   *orders
	acks     map[string]capacity.Ack
	foretold sync.Pool // of *foretold
	budget   float64   // retries that may be made now
	losses   resume.Allowance
	dialects map[string]string // engines by the addresses of workers that are gone
	deaths   poison.Memory     // requests under which workers died
	events   uint64            // deaths of workers so far
	ending   bool              // the instance is stopping, and what still runs is being ended
	kick     chan struct{}
	// thaw asks the warden to look at what is loaded.
	thaw    chan struct{}
	last    *census // of what is loaded
	loads   loadTimes
	scalers map[string]*scaler
	// reckoned is when desired replicas were.
	reckoned time.Time
	warming  warm.Config
	drain    health.Drain        // since when the zone is drained
	wants    map[stock]time.Time // until when somebody waits for what only some pools' workers may load
	swept    time.Time           // when the workers were last compared
	walked   time.Time           // when the patrol last looked at every worker
	stood    time.Duration       // for how long this process was stopped, until the patrol has said so
	hits     [2]hitScore         // by whether the prefix index was exact
	split    *division           // of the workers among the zone's instances; nil: all are ours
	rows     rows                // of workers and pools, by name
}

// pool is what serves one model.
type pool struct {
	model   string
	view    *pick.View
	workers []*worker // in the order of view.Workers
	queue   *queue.Queue[*visit]
	prompt  average          // tokens of prompts
	pace    average          // seconds that its workers take for a prompt token
	panics  bool             // so few workers take requests that doubts no longer count
	counted average          // counted over estimated prompt tokens
	turns   map[uint64]*turn // by the requests' pools
	onward  pick.Onward      // what its workers have cached beyond what is known
	sketch  sketch           // of the beginnings of prompts that its workers have cached
	// surprises are how streams and other answers have kept to their predictions.
	surprises [2]pick.Surprise
}

func newFloor(cfg Config) *floor {
	rng, secret := cfg.sow()
	return &floor{
		cfg: cfg, rng: rng, secret: secret,
		ledger: pick.NewLedger(), index: pick.NewIndex(cfg.PrefixIndex), lengths: pick.NewLengths(maxLengths),
		workers: map[string]*worker{}, leaving: map[*worker]struct{}{}, pools: map[string]*pool{}, orders: firstOrders(cfg),
		acks: map[string]capacity.Ack{}, budget: retryBurst, kick: make(chan struct{}, 1), thaw: make(chan struct{}, 1),
		loads: loadTimes{}, scalers: map[string]*scaler{}, warming: cfg.Warm.WithDefaults(),
	}
}

// add takes a worker in; nil when there is no slot for it.
func (f *floor) add(w *worker, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	id, ok := f.ledger.Add()
	if !ok {
		return false
	}
	w.id = id
	w.models = declaredModels(w.declared)
	w.before = f.dialects[w.declared.URL]
	w.breaker = health.New(f.orders.health(f.cfg.Health), f.rng)
	w.overcommit = pick.NewOvercommit(f.orders.overcommit())
	w.setPrior()
	w.attempts, w.places = map[*attempt]struct{}{}, map[string]*place{}
	w.pools = route.PoolsWith(f.orders.spec, w.declared.Labels)
	f.workers[w.declared.Name], f.rows.workers = w, nil
	w.elsewhere = f.whose(w)
	w.drained = f.orders.drained(f.cfg.Region, f.cfg.Zone, w.declared.Name, now)
	f.seat(now)
	return true
}

// setPrior starts the worker's rates from its GPU type and its first model.
func (w *worker) setPrior() {
	model := ""
	if len(w.models) > 0 {
		model = w.models[0].ID
		if w.models[0].Parent != "" {
			model = w.models[0].Parent
		}
	}
	w.prior = pick.PriorFor(w.declared.GPU, model)
	w.learner = pick.NewLearner(w.prior.Rates)
	w.latency = pick.Latency{}
}

// remove lets a worker's answers finish and gives it nothing new.
func (f *floor) remove(w *worker, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rememberDialect(w)
	w.gone, w.seats = true, nil // its place in the views is another's from here on
	f.leaving[w] = struct{}{}
	if f.workers[w.declared.Name] == w {
		delete(f.workers, w.declared.Name)
		f.rows.workers = nil
	}
	f.seat(now)
	f.release(w)
}

// rememberDialect keeps what engine is at a worker's address, for when the worker is declared again: a registration or a DNS
// answer may lapse while it restarts.
func (f *floor) rememberDialect(w *worker) {
	name := w.speaks()
	if name == "" || name == engine.NameAuto {
		return
	}
	if f.dialects == nil || len(f.dialects) >= maxDialects {
		f.dialects = map[string]string{} // nothing is lost but a resumption
	}
	f.dialects[w.declared.URL] = name
}

// release gives a gone worker's slot back once its last answer is over.
func (f *floor) release(w *worker) {
	if w.gone && w.open == 0 && w.id >= 0 {
		f.index.Forget(w.id)
		f.index.Doubt(w.id)
		f.ledger.Drop(w.id)
		delete(f.leaving, w)
		w.id = -1
	}
}

// seat builds the views anew after workers or their models have changed. Queues, averages and turns stay.
func (f *floor) seat(now time.Time) {
	f.changed()
	names := map[string][]*worker{}
	for _, w := range f.workers {
		w.seats = nil
		f.survey(w, now)
		for name := range w.places {
			names[name] = append(names[name], w)
		}
	}
	for name := range f.pools {
		f.seatModel(name, names[name], now)
	}
	for name, ws := range names {
		if f.pools[name] == nil {
			f.seatModel(name, ws, now)
		}
	}
}

// dropPool makes room for another pool: it drops one that has no workers and that nothing waits for. False when there is none.
func (f *floor) dropPool(now time.Time) bool {
	busy := map[*pool]bool{}
	for _, w := range f.workers {
		for at := range w.attempts {
			busy[at.pool] = true
		}
	}
	for w := range f.leaving {
		for at := range w.attempts {
			busy[at.pool] = true
		}
	}
	for k, until := range f.wants {
		if p := f.pools[k.model]; p != nil && now.Before(until) {
			busy[p] = true
		}
	}
	drop := ""
	for name, p := range f.pools {
		if len(p.workers) == 0 && p.queue.Len() == 0 && !busy[p] && (drop == "" || name < drop) {
			drop = name
		}
	}
	if drop == "" {
		return false
	}
	delete(f.pools, drop)
	f.rows = rows{}
	return true
}

func (f *floor) seatModel(name string, ws []*worker, now time.Time) {
	p := f.pools[name]
	if p == nil {
		if len(f.pools) >= maxPools && !f.dropPool(now) {
			return
		}
		p = &pool{model: name, queue: queue.New[*visit](f.orders.queue(name, f.cfg.Queue))}
		f.pools[name] = p
	}
	slices.SortFunc(ws, func(a, b *worker) int { return strings.Compare(a.declared.Name, b.declared.Name) })
	views := make([]pick.Worker, len(ws))
	limit := f.orders.maxContext(name)
	for i, w := range ws {
		longest := w.contextOf(name)
		if limit > 0 && (longest == 0 || limit < longest) {
			longest = limit
		}
		views[i] = p.relent(w, w.view(name, longest, now))
		w.seats = append(w.seats, seat{p, i})
	}
	v := pick.NewView(views, f.ledger, f.index, f.orders.policy)
	v.LongShare, v.OverlapWeight, v.Temperature = f.orders.spec.Routing.LongShare, f.orders.spec.Routing.OverlapWeight, f.orders.spec.Routing.Temperature
	v.Onward = &p.onward
	v.Resume(p.view)
	p.view, p.workers = v, ws
}

// obey puts new orders in force.
func (f *floor) obey(o *orders, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o.prefixSeed != f.orders.prefixSeed {
		f.forgetSketches()
	}
	f.orders = o
	for _, w := range f.workers {
		w.drained = o.drained(f.cfg.Region, f.cfg.Zone, w.declared.Name, now)
		w.pools = route.PoolsWith(o.spec, w.declared.Labels)
		w.overcommit.Limit(o.overcommit(), now)
		w.breaker.Configure(o.health(f.cfg.Health))
	}
	for name, p := range f.pools {
		p.queue.Configure(o.queue(name, f.cfg.Queue))
	}
	f.seat(now)
	f.serveAll(now)
}

// served lists the models that have a worker, in order.
func (f *floor) served() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.servedLocked()
}

func (f *floor) servedLocked() []string {
	var out []string
	for name, p := range f.pools {
		if len(p.workers) > 0 {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
