package local

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
)

// Lab is an instance of the local tier for a caller that brings its own time, such as the simulator: the floor of an
// Agent, where everything is decided, without the sockets, goroutines and timers around it. Its caller does what those
// do: it scrapes, patrols and pumps at their times, and tells what became of each attempt. A Lab has one caller at a time
// and no lock worth the name; the same calls with the same seed come to the same decisions.
type Lab struct {
	floor   *floor
	path    capacity.Path
	workers []*LabWorker
	request *http.Request
	blank   []byte
	settled []*LabVisit
	spare   []*LabVisit
}

// LabConfig says what a Lab is.
type LabConfig struct {
	// Region, Zone and Name are the instance's path.
	Region, Zone, Name string
	// Policy overrides the spec's; empty follows it.
	Policy string
	// Spec in force; nil means defaults.
	Spec *spec.Spec
	// Seed of all chance in it; 0 counts as 1.
	Seed uint64
	// PrefixIndex bounds the memory of the prefix index, in bytes. Default 128 MiB.
	PrefixIndex int
	// Queue and Health as in Config.
	Queue  queue.Config
	Health health.Config
	// Blank is memory that is never written, as long as the longest prompt in bytes: it stands for prompts' texts, of
	// which only the length is looked at. Several Labs may share one.
	Blank []byte
}

// NewLab returns a zone without workers. The error says which policy is not known.
func NewLab(c LabConfig) (*Lab, error) {
	if _, err := pick.ParsePolicy(c.Policy); err != nil {
		return nil, err
	}
	cfg := Config{
		Name: c.Name, Region: c.Region, Zone: c.Zone, Policy: c.Policy, Spec: c.Spec, PrefixIndex: c.PrefixIndex, Queue: c.Queue, Health: c.Health, Seed: c.Seed,
	}
	cfg.Seed = max(cfg.Seed, 1) // 0 would be the system's chance
	if cfg.PrefixIndex <= 0 {
		cfg.PrefixIndex = defaultPrefixIndex
	}
	l := &Lab{floor: newFloor(cfg), path: capacity.Path{Region: c.Region, Zone: c.Zone, Instance: c.Name}, blank: c.Blank}
	l.request = &http.Request{Method: http.MethodPost, URL: pathURL(openai.PathCompletions), Header: http.Header{}}
	return l, nil
}

// LabWorker is a worker of a Lab.
type LabWorker struct {
	w *worker
	// At is its place in the order of Add, which is what LabAttempt.Worker says.
	At int
}

// Add takes a worker in that serves one model, with prompts and answers up to maxContext tokens. The floor knows of it what
// an operator would declare, and gives it nothing until a scrape has found it well.
func (l *Lab) Add(d discover.Worker, model string, maxContext int64, now time.Time) (*LabWorker, error) {
	w := &worker{declared: d, engine: labEngine{}, stop: func() {}, look: make(chan struct{}, 1)}
	if !l.floor.add(w, now) {
		return nil, fmt.Errorf("the zone has %d workers, and one instance takes no more: split it into zones", len(l.workers))
	}
	w.models = []engine.Model{{ID: model, MaxContext: maxContext}}
	w.setPrior()
	lw := &LabWorker{w: w, At: len(l.workers)}
	l.workers = append(l.workers, lw)
	return lw, nil
}

// Seat puts workers that were added into the views.
func (l *Lab) Seat(now time.Time) {
	l.floor.mu.Lock()
	defer l.floor.mu.Unlock()
	l.floor.seat(now)
}

// labEngine is an engine that is asked nothing: its worker's caller says what it would have answered.
type labEngine struct{}

var errNotAsked = errors.New("a worker in virtual time is asked nothing")

func (labEngine) Name() string                                   { return "vllm" }
func (labEngine) Health(context.Context) error                   { return errNotAsked }
func (labEngine) Models(context.Context) ([]engine.Model, error) { return nil, errNotAsked }
func (labEngine) Metrics(_ context.Context, last engine.Reading) (engine.Reading, error) {
	return last, errNotAsked
}

// Scraped books what a look at a worker came to: what it said of itself, or why it said nothing. A worker that has been
// out is warmed up at once.
func (l *Lab) Scraped(w *LabWorker, r *engine.Reading, failed error, now time.Time) {
	l.floor.booked(w.w, *r, w.w.turn, failed, now)
	if w.w.breaker.State() == health.Warming {
		l.floor.mu.Lock()
		w.w.breaker.Warmed(now)
		w.w.refresh(now)
		l.floor.serveAll(now)
		l.floor.mu.Unlock()
	}
}

// Down says why a worker takes nothing, in the words of status; empty when it does.
func (l *Lab) Down(w *LabWorker) string { return w.w.down() }

// Emits books that a worker is emitting, as its streams do four times a second.
func (l *Lab) Emits(w *LabWorker, now time.Time) { w.w.breaker.Progress(now) }

// PatrolEvery and PumpEvery are how often Patrol and, while it says that somebody waits, Pump are called.
const (
	PatrolEvery = patrolEvery
	PumpEvery   = pumpEvery
)

// Patrol looks for workers that hold answers and emit nothing, compares them with each other, and ends what outlasts drains.
func (l *Lab) Patrol(now time.Time) { l.floor.patrol(now) }

// Pump gives waiting visits to workers that have room, and says whether any still wait.
func (l *Lab) Pump(now time.Time) (waiting bool) {
	l.floor.mu.Lock()
	defer l.floor.mu.Unlock()
	return l.floor.serveAll(now)
}

// Waiting is how many visits wait.
func (l *Lab) Waiting() (n int) {
	for _, p := range l.floor.models() {
		n += p.queue.Len()
	}
	return n
}

// Summary states the zone's capacity now, as it goes up.
func (l *Lab) Summary(now time.Time) capacity.Summary { return l.floor.summary(l.path, now) }

// Obey puts a directive in force.
func (l *Lab) Obey(d *uplink.Directive, s *spec.Spec, now time.Time) {
	l.floor.obey(makeOrders(l.floor.cfg, d, s), now)
}
