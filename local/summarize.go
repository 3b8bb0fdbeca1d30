package local

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/route"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
)

// decodeBatch is the batch at which a worker's decode rate is stated, in sequences.
const decodeBatch = 32

// Summary states the zone's capacity now.
func (a *Agent) Summary(now time.Time) capacity.Summary {
	s := a.floor.summary(a.path(), now)
	s.Draining = s.Draining || a.leaving.Load()
	return s
}

func (f *floor) summary(path capacity.Path, now time.Time) capacity.Summary {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := capacity.Summary{Path: path, Draining: f.orders.drained(f.cfg.Region, f.cfg.Zone, "", now)}
	for _, p := range f.models() {
		if len(p.workers) > 0 || p.queue.Len() > 0 {
			s.Models = append(s.Models, f.summarize(p, now))
		}
	}
	for _, k := range f.acks {
		s.Acks = append(s.Acks, k)
	}
	slices.SortFunc(s.Acks, func(x, y capacity.Ack) int { return strings.Compare(x.Parent, y.Parent) })
	return s
}

// summarize adds up one model's workers.
func (f *floor) summarize(p *pool, now time.Time) capacity.Model {
	shared := f.shared(p)
	m := f.portray(p, p.model, func(v *pick.Worker) bool { return !shared || !route.SetApart(f.orders.spec, v.Pools, p.model) }, now)
	m.Prefixes = p.sketch.of(f.index, now)
	for name, bit := range route.Pools(f.orders.spec, p.model) {
		if len(m.Pools) < capacity.MaxPools {
			m.Pools = append(m.Pools, f.portray(p, name, func(v *pick.Worker) bool { return v.Pools&bit != 0 }, now))
		}
	}
	slices.SortFunc(m.Pools, func(x, y capacity.Model) int { return strings.Compare(x.Name, y.Name) })
	return m
}

// portray adds up those of a model's workers that are meant. What waits is counted whole for each: who waits for which of
// them is decided when one has room.
func (f *floor) portray(p *pool, name string, meant func(*pick.Worker) bool, now time.Time) capacity.Model {
	m := capacity.Model{Name: name, Queued: int64(p.queue.Len()), Backlog: p.queue.Work()}
	soonest, rate := -1.0, 0.0
	for i, w := range p.workers {
		v := &p.view.Workers[i]
		if w.elsewhere != "" {
			continue // who serves it speaks for it
		}
		in := meant(v)
		if in || name == p.model {
			m.Total++ // of the model all that there are
		}
		if !in {
			continue
		}
		load := f.ledger.Load(w.id, v.Rates.PrefillRate, now)
		m.Backlog += load.Backlog + load.ForeignBacklog
		m.Running += load.Running + load.ForeignSeqs
		f.latent(&m, p.model, w, now)
		if v.Down != "" {
			continue
		}
		full := v.Rates.PrefillRate // a slow start is a matter among the zone's workers, not of what it can do
		m.Ready++
		m.CostMicros += w.prior.CostMicros
		m.MaxContext = max(m.MaxContext, v.MaxContext)
		kv := v.KVTotal
		if kv == 0 {
			kv = w.prior.KVTotal
		}
		kvFree := max(0, kv-load.HeldKV())
		m.KVTotal += kv
		m.KVFree += kvFree
		slots := cmp.Or(v.Slots, 256)
		m.SlotsTotal += slots
		m.SlotsFree += max(0, slots-load.Running-load.ForeignSeqs)
		m.Hardware = addHardware(m.Hardware, w.declared.GPU, full, v.Rates.DecodeRate(decodeBatch))
		wait := float64(load.Backlog+load.ForeignBacklog)/full + f.ledger.Late(w.id, v.Rates, now)
		if soonest < 0 || wait < soonest {
			soonest = wait
		}
		rate += full
		f.headroom(&m, p, full, wait, float64(kvFree)/float64(kv))
	}
	for c := range spec.Class(spec.NumClasses) {
		m.Ahead[c] = f.ahead(p, c, max(soonest, 0), rate, now)
	}
	return m
}

// shared says that some worker takes anybody's requests for the model. What is stated then leaves out the workers that are
// set apart for tenants: a gateway would send everybody there. Where there are no others they are stated all the same, or
// their own tenants would find no way to them; who else comes is refused and sent on.
func (f *floor) shared(p *pool) bool {
	if len(f.orders.spec.Pools) == 0 {
		return false
	}
	for i := range p.view.Workers {
		if v := &p.view.Workers[i]; v.Down == "" && !route.SetApart(f.orders.spec, v.Pools, p.model) {
			return true
		}
	}
	return false
}

// ahead is the predicted wait of a new request as work at the pool's rate: what the soonest worker still has to do, and
// what waits, or what the wait has lately cost where room and not prefill is what lacks.
func (f *floor) ahead(p *pool, c spec.Class, soonest, rate float64, now time.Time) int64 {
	queued := float64(p.queue.Ahead(c))
	if p.queue.Len() > 0 {
		if wait, ok := p.queue.Wait(c, now); ok {
			queued = max(queued, min(wait.Seconds(), 600)*rate)
		}
	}
	return int64(queued + soonest*rate)
}

// headroom adds what one worker could take on inside each class's target: its rate, less as its backlog nears the
// target, and less over the last tenth of its KV cache.
func (f *floor) headroom(m *capacity.Model, p *pool, rate, wait, kvFree float64) {
	for c := range spec.Class(spec.NumClasses) {
		target := f.orders.ttft(p.model, c).Seconds()
		m.Headroom[c] += int64(rate * max(0, 1-wait/target) * min(1, 10*kvFree))
	}
}

func addHardware(hs []capacity.Hardware, name string, prefill, decode float64) []capacity.Hardware {
	if name == "" {
		name = "unknown"
	}
	at, found := slices.BinarySearchFunc(hs, name, func(h capacity.Hardware, n string) int { return cmp.Compare(h.Name, n) })
	if !found {
		if len(hs) == capacity.MaxHardware {
			at = len(hs) - 1 // types beyond the limit are counted with the last
		} else {
			hs = slices.Insert(hs, at, capacity.Hardware{Name: name})
		}
	}
	hs[at].Ready++
	hs[at].PrefillRate += int64(prefill)
	hs[at].DecodeRate += int64(decode)
	return hs
}
