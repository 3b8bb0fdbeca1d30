package local

import (
	"encoding/binary"
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/engine"
)

// flow is one tenant's requests in a floodZone.
type flow struct {
	tenant      string
	class       spec.Class
	rate        float64 // requests/s
	from, until time.Duration
	prompt, out load.Lengths
	burst       int // requests that come at once; 0 is one
	seed        uint64

	source load.Source
	next   load.Arrival
	left   int           // of the burst
	due    time.Duration // of the next request
	sent   int
	ttft   []time.Duration // of its whole answers that came due since the zone's count began, in order of their end
	lost   int             // refused since then
	served int             // answers that ended from then until its last request was due
	open   int             // requests that are not over
}

// floodZone is the floor with its workers' engines in virtual time: what a zone decides, without its network.
type floodZone struct {
	t       *testing.T
	f       *floor
	begun   time.Time
	count   time.Duration // from when on requests count
	workers []*worker
	engines []*gpu.Engine
	flows   []*flow
	waits   []*ride
	ends    []*ride // whose last token is made, by when they are over
	patrol  time.Time
	scrape  time.Time
}

// ride is a request in a floodZone.
type ride struct {
	flow   *flow
	visit  *visit
	at     *attempt
	prompt int
	out    int
	hashes []uint64
	over   time.Time
	counts bool
}

// patience is for how long the last answers are waited for.
const patience = time.Minute

const floodModel = "Llama-3.1-8B"

func newFloodZone(t *testing.T, kind string, n int, flows ...*flow) *floodZone {
	t.Helper()
	profile, err := gpu.Lookup(kind, floodModel, 0)
	if err != nil {
		t.Fatal(err)
	}
	z := &floodZone{t: t, begun: time.Now(), flows: flows, f: newFloor(Config{Name: "a", Region: "r", Zone: "z"})}
	z.f.rng = rand.New(rand.NewPCG(flows[0].seed, 1)) // the floor's own is drawn anew each time
	for i := range n {
		w := newTestWorker(t, discover.Worker{Name: string(rune('a' + i)), URL: "http://10.0.0.1:1", Engine: "vllm", Models: []string{floodModel}, Weight: 1})
		if !z.f.add(w, z.begun) {
			t.Fatal("no room for a worker")
		}
		e, err := gpu.NewEngine(gpu.EngineConfig{Profile: profile, Rand: rand.New(rand.NewPCG(flows[0].seed, uint64(i))), Salt: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		z.workers, z.engines = append(z.workers, w), append(z.engines, e)
		w.breaker.ProbeOK(z.begun)
		w.breaker.Warmed(z.begun)
	}
	z.scrapeAll(z.begun)
	for _, fl := range flows {
		fl.source, err = load.NewPoisson(load.Poisson{Rate: fl.rate, Prompt: fl.prompt, Output: fl.out, Groups: 8, PrefixTokens: 160, Seed: fl.seed})
		if err != nil {
			t.Fatal(err)
		}
		fl.advance()
	}
	return z
}

// advance draws the flow's next request. Those of a burst come at the moment of its first.
func (fl *flow) advance() {
	fl.next, _ = fl.source.Next() // of a source without an end
	if fl.left--; fl.left <= 0 {
		fl.left, fl.due = max(fl.burst, 1), fl.from+fl.next.At
	}
}

// run plays the flows until the first one's last request is over. Call it in a synctest bubble.
func (z *floodZone) run() {
	first := z.flows[0]
	for {
		now := time.Now()
		if at := now.Sub(z.begun); at >= first.until && first.open == 0 || at >= first.until+patience {
			return
		}
		next := z.begun.Add(max(first.until, now.Sub(z.begun)+time.Second))
		sooner := func(t time.Time) {
			if t.Before(next) {
				next = t
			}
		}
		for _, fl := range z.flows {
			if fl.due < fl.until {
				sooner(z.begun.Add(fl.due))
			}
		}
		for _, e := range z.engines {
			if at, ok := e.Next(); ok {
				sooner(at)
			}
		}
		for _, r := range z.ends {
			sooner(r.over)
		}
		sooner(z.patrol)
		sooner(z.scrape)
		if len(z.waits) > 0 {
			sooner(now.Add(pumpEvery))
		}
		time.Sleep(time.Until(next))
		z.tick(time.Now())
	}
}

func (z *floodZone) tick(now time.Time) {
	for _, fl := range z.flows {
		for fl.due < fl.until && !z.begun.Add(fl.due).After(now) {
			z.arrive(fl, now)
			fl.advance()
		}
	}
	for _, e := range z.engines {
		if at, ok := e.Next(); !ok || at.After(now) {
			continue
		}
		for _, s := range e.Advance(now) {
			r := s.Owner().(*ride)
			r.at.last = now
			if s.Generated() == 1 {
				z.f.firstByte(r.at, true, now)
			}
			if s.Done() {
				r.over = now.Add(gpu.Finish)
				z.ends = append(z.ends, r)
				r.hashes = []uint64{uint64(s.Cached())}
			}
		}
	}
	z.ends = slices.DeleteFunc(z.ends, func(r *ride) bool {
		if r.over.After(now) {
			return false
		}
		z.finish(r, now)
		return true
	})
	if !now.Before(z.patrol) {
		z.f.patrol(now)
		z.patrol = now.Add(patrolEvery)
	}
	if !now.Before(z.scrape) {
		z.scrapeAll(now)
	}
	if len(z.waits) > 0 {
		z.f.mu.Lock()
		z.f.serveAll(now)
		z.f.mu.Unlock()
	}
	z.collect(now)
}

// collect takes what the floor has decided of those that wait, and has those leave whose patience is over.
func (z *floodZone) collect(now time.Time) {
	z.waits = slices.DeleteFunc(z.waits, func(r *ride) bool {
		if len(r.visit.ready) == 0 {
			if !now.After(r.visit.item.Deadline) {
				return false
			}
			at, _ := z.f.leave(r.visit, openai.Upstream("late"), now)
			z.verdict(r, at, now)
			return true
		}
		d := <-r.visit.ready
		z.verdict(r, d.attempt, now)
		return true
	})
}

func (z *floodZone) verdict(r *ride, at *attempt, now time.Time) {
	if at == nil {
		r.flow.open--
		if r.counts {
			r.flow.lost++
		}
		return
	}
	z.send(r, at, now)
}

func (z *floodZone) send(r *ride, at *attempt, now time.Time) {
	r.at = at
	for i, w := range z.workers {
		if w == at.worker {
			if _, err := z.engines[i].Submit(now, gpu.Request{Prefix: r.hashes, PromptTokens: r.prompt, OutputTokens: r.out, Owner: r}); err != nil {
				z.t.Fatal(err)
			}
		}
	}
}

func (z *floodZone) arrive(fl *flow, now time.Time) {
	a := &fl.next
	r := &ride{flow: fl, prompt: a.PromptTokens(), out: a.Output, counts: fl.due >= z.count}
	text := make([]byte, 4*r.prompt)
	at := 0
	for _, p := range a.Prompt {
		for b := range (p.Tokens + 1) / 2 {
			if off := at + 8*b; off+8 <= len(text) {
				binary.LittleEndian.PutUint64(text[off:], p.ID+uint64(b))
			}
		}
		at += 4 * p.Tokens
	}
	if len(a.Prompt) > 1 {
		for i := range a.Prompt[0].Tokens / gpu.BlockTokens {
			r.hashes = append(r.hashes, a.Prompt[0].ID+uint64(i))
		}
	}
	v := &visit{
		r:     &http.Request{Method: http.MethodPost, URL: pathURL(openai.PathChat), Header: http.Header{}},
		model: floodModel, estimate: int64(r.prompt), class: fl.class, arrived: now, excluded: [2]int32{-1, -1}, body: text,
	}
	v.hop.Tenant = fl.tenant
	v.env.Stream, v.env.Prompt, v.env.MaxTokens, v.env.N = true, text, r.out, 1
	r.visit = v
	fl.sent++
	got, _, waits := z.f.arrive(v, now)
	fl.open++
	switch {
	case waits:
		z.waits = append(z.waits, r)
	default:
		z.verdict(r, got, now)
	}
}

func (z *floodZone) finish(r *ride, now time.Time) {
	m := &meter{at: r.at, events: true, status: http.StatusOK}
	m.stream.Events = int64(r.out)
	m.stream.Usage = openai.Usage{Prompt: r.prompt, Completion: r.out, Cached: int(r.hashes[0]), Stated: true}
	z.f.end(r.at, m, &relay.Result{Status: http.StatusOK, Started: true}, now)
	r.flow.open--
	if r.counts {
		r.flow.ttft = append(r.flow.ttft, r.at.first.Sub(r.visit.arrived))
	}
	if at := now.Sub(z.begun); at >= z.count && at < r.flow.until {
		r.flow.served++
	}
}

func (z *floodZone) scrapeAll(now time.Time) {
	for i, w := range z.workers {
		g, c := z.engines[i].Gauges(), z.engines[i].Counters()
		z.f.booked(w, engine.Reading{
			At: now, LoadAt: now, Running: int64(g.Running), Waiting: int64(g.Waiting), KVUsage: g.KVUsage, KVSaid: true,
			KVTotal: int64(g.KVBlocks) * gpu.BlockTokens, Slots: int64(z.engines[i].Limits().MaxSeqs),
			PromptTokens: float64(c.Prompt), OutputTokens: float64(c.Generated), Preemptions: float64(c.Preemptions),
		}, w.turn, nil, now)
	}
	z.scrape = now.Add(time.Second)
}

// inFloodZone plays the flows in a zone of n workers in virtual time.
func inFloodZone(t *testing.T, kind string, n int, count time.Duration, flows ...*flow) (z *floodZone) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		z = newFloodZone(t, kind, n, flows...)
		z.count = count
		z.run()
	})
	for _, fl := range flows {
		slices.Sort(fl.ttft)
	}
	return z
}
