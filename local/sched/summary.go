package sched

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/modelroute"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/prefix"
)

// Reporter describes the zone: the summary for gateways, the status for operators, and explanations of choices.
type Reporter struct {
	*zoneState
	loader      *ModelLoader
	autoscaling *Autoscaling
	admission   *Admission
}

// decodeRateBatch is the batch size at which a worker's decode rate is reported, in sequences.
const decodeRateBatch = 32

// BuildSummary returns the capacity summary for gateways.
func (r *Reporter) BuildSummary(path capacity.Path, now time.Time) capacity.Summary {
	s := capacity.Summary{Path: path, Draining: r.policy.isDrained(r.cfg.Region, r.cfg.Zone, "", now)}
	for _, p := range r.groupsByModel() {
		if len(p.workers) > 0 || p.queue.Len() > 0 {
			s.Models = append(s.Models, r.summarizeModel(p, now))
		}
	}
	for _, k := range r.admission.acks {
		s.Acks = append(s.Acks, k)
	}
	slices.SortFunc(s.Acks, func(x, y capacity.LedgerAck) int { return strings.Compare(x.Parent, y.Parent) })
	return s
}

// summarizeModel adds up one model's workers.
func (r *Reporter) summarizeModel(p *modelGroup, now time.Time) *capacity.ModelCapacity {
	shared := r.hasSharedWorker(p)
	m := r.summarizeWorkers(p, p.model, func(v *pick.WorkerSnapshot) bool {
		return !shared || !modelroute.IsDedicated(r.policy.Spec, v.Pools, p.model)
	}, now)
	m.Prefixes = p.sketch.buildPrefixes(r.prefixIndex, now)
	for name, bit := range modelroute.PoolsForModel(r.policy.Spec, p.model) {
		if len(m.Pools) < capacity.MaxPools {
			m.Pools = append(m.Pools, r.summarizeWorkers(p, name, func(v *pick.WorkerSnapshot) bool { return v.Pools&bit != 0 }, now))
		}
	}
	slices.SortFunc(m.Pools, func(x, y *capacity.ModelCapacity) int { return strings.Compare(x.Name, y.Name) })
	return m
}

// summarizeWorkers adds up the workers of a model for which counted returns true. The queue is counted in full each time: which
// request goes to which worker is decided only when one has room.
func (r *Reporter) summarizeWorkers(p *modelGroup, name string, counted func(*pick.WorkerSnapshot) bool, now time.Time) *capacity.ModelCapacity {
	m := &capacity.ModelCapacity{Name: name, Queued: int64(p.queue.Len()), Backlog: p.queue.WaitingWork()}
	soonest, rate := -1.0, 0.0
	for i, w := range p.workers {
		v := &p.view.Workers[i]
		if w.otherOwner != "" {
			continue // the instance that owns it reports it
		}
		in := counted(v)
		if in || name == p.model {
			m.Total++ // the model's total counts all its workers
		}
		if !in {
			continue
		}
		load := r.ledger.ReadLoad(w.ledgerID, v.Rates.PrefillRate, now)
		m.Backlog += load.Backlog + load.ForeignBacklog
		m.Running += load.Running + load.ForeignSeqs
		r.loader.addUnreadyWorker(m, p.model, w, now)
		if v.DownReason != "" {
			continue
		}
		full := v.Rates.PrefillRate // slow start shifts requests between the zone's workers; it does not reduce their capacity
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
		m.Hardware = addHardware(m.Hardware, w.Spec.GPU, full, v.Rates.DecodeRate(decodeRateBatch))
		wait := float64(load.Backlog+load.ForeignBacklog)/full + r.ledger.LateSeconds(w.ledgerID, v.Rates, now)
		if soonest < 0 || wait < soonest {
			soonest = wait
		}
		rate += full
		r.addHeadroom(m, p, full, wait, float64(kvFree)/float64(kv))
	}
	for c := range spec.Class(spec.NumClasses) {
		m.WorkAhead[c] = r.predictBacklog(p, c, max(soonest, 0), rate, now)
	}
	return m
}

// hasSharedWorker reports whether some worker takes any tenant's requests for the model. The summary then omits the workers
// that are dedicated to tenants: with them in it, a gateway would send any tenant's requests there. Without shared workers the
// dedicated ones are reported, since their own tenants could not reach them otherwise; other requests are refused and retried
// elsewhere.
func (r *Reporter) hasSharedWorker(p *modelGroup) bool {
	if len(r.policy.Spec.Pools) == 0 {
		return false
	}
	for i := range p.view.Workers {
		if v := &p.view.Workers[i]; v.DownReason == "" && !modelroute.IsDedicated(r.policy.Spec, v.Pools, p.model) {
			return true
		}
	}
	return false
}

// predictBacklog is the predicted wait of a new request of class c, expressed in tokens at the group's rate. It is the backlog of
// the worker that is free soonest plus the queued work. Where slots or KV cache are short rather than prefill, the recent queue
// wait is longer and replaces the queued work; it counts up to 600 s.
func (r *Reporter) predictBacklog(p *modelGroup, c spec.Class, soonest, rate float64, now time.Time) int64 {
	queued := float64(p.queue.WorkAhead(c))
	if p.queue.Len() > 0 {
		if wait, ok := p.queue.PredictWait(c, now); ok {
			queued = max(queued, min(wait.Seconds(), 600)*rate)
		}
	}
	return int64(queued + soonest*rate)
}

// addHeadroom adds what one worker can take within each class's TTFT target: rate * (1 - wait/target), reduced further over the
// last tenth of its free KV cache.
func (r *Reporter) addHeadroom(m *capacity.ModelCapacity, p *modelGroup, rate, wait, kvFree float64) {
	for c := range spec.Class(spec.NumClasses) {
		target := r.policy.TTFTTarget(p.model, c).Seconds()
		m.Headroom[c] += int64(rate * max(0, 1-wait/target) * min(1, 10*kvFree))
	}
}

func addHardware(hs []capacity.HardwareRates, name string, prefill, decode float64) []capacity.HardwareRates {
	if name == "" {
		name = "unknown"
	}
	at, found := slices.BinarySearchFunc(hs, name, func(h capacity.HardwareRates, n string) int { return cmp.Compare(h.Name, n) })
	if !found {
		if len(hs) == capacity.MaxHardware {
			at = len(hs) - 1 // types beyond the limit are counted with the last
		} else {
			hs = slices.Insert(hs, at, capacity.HardwareRates{Name: name})
		}
	}
	hs[at].Ready++
	hs[at].PrefillRate += int64(prefill)
	hs[at].DecodeRate += int64(decode)
	return hs
}

// prefixSketch is the reported sketch of one model's cached prefixes.
type prefixSketch struct {
	hotPrefixes *prefix.HotPrefixes
	lastBuilt   []capacity.PrefixEntry
	builtAt     time.Time
}

// sketchInterval is how often a model's prefix sketch is rebuilt. Hot prefixes change slowly, and an unchanged sketch is not
// sent again.
const sketchInterval = time.Second

// buildPrefixes returns the sketch for a summary, rebuilt at most every sketchInterval. The slice does not change afterwards.
func (s *prefixSketch) buildPrefixes(x *prefix.Index, now time.Time) []capacity.PrefixEntry {
	if s.hotPrefixes == nil {
		return nil
	}
	if age := now.Sub(s.builtAt); age >= sketchInterval || age < 0 {
		s.lastBuilt, s.builtAt = s.hotPrefixes.TopPrefixes(x, capacity.MaxPrefixes), now
	}
	return s.lastBuilt
}
