package pick

import "math"

// View is what one choice looks at: a snapshot of the workers, and the ledger and the index, which are the writer's
// own and are only read, except for their scratch space. Make one with NewView.
type View struct {
	// Workers that serve the model, in any stable order. Change one with Set, never in place.
	Workers []Worker
	// Ledger of what was dispatched.
	Ledger *Ledger
	// Index of cached prefixes; nil when prefixes are not looked at.
	Index *Index
	// Policy that decides.
	Policy Policy
	// LongShare is the part of a worker's KV cache that long requests may hold together; 0 is half. Set it before the first
	// choice.
	LongShare float64
	// OverlapWeight is what a block of prefill counts to overlap_cost, in blocks of decode; 0 is 1.
	OverlapWeight float64
	// Temperature is how freely overlap_cost strays from the least cost; 0 is never.
	Temperature float64
	// Onward is how much of what follows the longest known beginning of a prompt has turned out to be cached; nil is none of it.
	Onward *Onward

	gates    []gate    // what every choice reads of every worker, close together
	brief    []brief   // and of every candidate
	lanes    []lane    // and what says whether it can be near the best
	top      float64   // greatest share of any worker that is up: shares count relative to it
	dirty    bool      // top has to be found anew
	adapters bool      // some worker says whether it holds the model's adapter
	cursor   uint32    // round robin's place
	turns    []float64 // weighted round robin's credit, by worker

	asked
	looking bool
	pruning bool                 // workers that cannot be near the best are passed over
	best    float64              // least cost found yet
	limit   float64              // cost beyond which nobody is near it
	pooled  bool                 // some worker is set apart for a pool
	walled  bool                 // pools matter to the current choice
	open    bool                 // workers of no pool may be chosen in it
	beyond  int32                // tokens that who holds most of the prompt is expected to have beyond what is known
	known   bool                 // somebody holds the beginning of the prompt
	cands   []int32              // candidates of the current choice, as indices into Workers
	odd     []int32              // those with room of whom something impossible is believed
	costs   []float64            // the candidates' costs in the policy's own unit, by index into Workers
	loads   []load               // what was found on each while it was screened
	cached  []int32              // tokens of the prompt that each candidate has
	worth   [MaxBlocks + 1]int32 // tokens of the prompt in so many of its blocks
}

// gate is the part of a Worker that says whether it has room, with what can be worked out beforehand. A fleet's gates
// are read in a row by every choice: they fill a cache line each.
type gate struct {
	rate     float64 // prefill tokens/s
	trusted  float64 // of which its share is trusted
	base     float64 // seconds of a first token that do not depend on the prompt
	kv       int64   // 0 when not known
	admitted int64   // KV tokens that may be promised
	longest  int64   // prompt, in tokens
	slots    int32
	id       int32
	trials   int32
	down     bool
	odd      bool
}

// promised is how much may be held at most, by others and by promise. What others hold is no promise but a fact: only the rest
// may be promised more often than it is there.
func (b *gate) promised(foreign int64) int64 {
	if b.admitted <= b.kv {
		return b.admitted
	}
	return b.admitted - int64(float64(b.admitted-b.kv)*min(float64(foreign)/float64(b.kv), 1))
}

// feed is how much prefill keeps an engine busy until it can be sent more, in seconds: a step and its scheduling. More
// than that only waits in the engine, where nobody can overtake it any more. It does not follow the learned base: that
// holds what the engine's own queue costs, so that the one would feed the other.
const feed = 0.05

// load is what a choice found on a worker.
type load struct {
	back  float64 // prefill backlog, in tokens
	count float64 // sequences
	held  float64 // KV cache that they hold, in thousands of tokens
	tight bool    // so little KV cache is left that the request would wait for it
}

// brief is the part that says what a request costs there.
type brief struct {
	perToken float64 // seconds for an uncached token, share and weight counted
	base     float64
	hit      float64 // part of believed prefix hits that is true
	bend     float64 // by how much a token before it makes a prompt token slower, as a part
	slope    float64 // seconds that a sequence adds to a step
	context  float64 // seconds that a thousand tokens of context add to a step
	step     float64
	power    float64 // weight times share
	rate     float64 // prefill tokens/s
	kv       int64   // 0 when not known
	later    float32 // Worker.Later: so long that a lane fills its line
	id       int32
}

// NewView returns a view with scratch space for its workers.
func NewView(workers []Worker, ledger *Ledger, index *Index, policy Policy) *View {
	n := len(workers)
	v := &View{
		Workers: workers, Ledger: ledger, Index: index, Policy: policy, dirty: true,
		gates: make([]gate, n), brief: make([]brief, n), lanes: make([]lane, n), turns: make([]float64, n), cands: make([]int32, 0, n), odd: make([]int32, 0, n),
		costs: make([]float64, n), loads: make([]load, n), cached: make([]int32, n),
	}
	for i := range workers {
		workers[i].key = hashName(workers[i].Name)
	}
	return v
}

// Set puts news of a worker into its place.
func (v *View) Set(at int, w Worker) {
	old := v.Workers[at].standing()
	if w.Name == v.Workers[at].Name {
		w.key = v.Workers[at].key
	} else {
		w.key = hashName(w.Name)
	}
	v.Workers[at] = w
	if s := w.standing(); s > v.top || s < old && old >= v.top {
		v.dirty = true
	}
	if !v.dirty {
		v.sum(at)
	}
}

// settle works the briefs out after the greatest share has changed.
func (v *View) settle() {
	if !v.dirty {
		return
	}
	v.top, v.adapters, v.pooled, v.dirty = 0, false, false, false
	for i := range v.Workers {
		v.top = max(v.top, v.Workers[i].standing())
	}
	for i := range v.Workers {
		v.sum(i)
	}
}

// sum works one brief out.
func (v *View) sum(at int) {
	w := &v.Workers[at]
	r := &w.Rates
	share := w.share() / max(v.top, 1e-9)
	power := w.weight() * share
	kv := max(w.KVTotal, 0)
	g := gate{
		rate: r.PrefillRate, trusted: r.PrefillRate * share, base: r.PrefillBase, kv: kv, admitted: int64(float64(kv) * w.overcommit()),
		longest: math.MaxInt64, slots: math.MaxInt32, id: w.ID, trials: w.Trials, down: w.Down != "", odd: w.odd(),
	}
	if w.Slots > 0 {
		g.slots = int32(min(w.Slots, math.MaxInt32))
	}
	if w.MaxContext > 0 {
		g.longest = w.MaxContext
	}
	if kv > 0 {
		g.longest = min(g.longest, kv)
	}
	v.gates[at] = g
	v.brief[at] = brief{
		perToken: 1 / (r.PrefillRate * power), base: r.PrefillBase, hit: r.trust(), bend: max(r.Attention, 0) / kilo, slope: r.StepSlope, context: r.StepContext,
		step: r.StepBase, power: power, rate: r.PrefillRate, kv: kv, later: float32(max(w.Later, 0)), id: w.ID,
	}
	v.lanes[at] = lane{rate: r.PrefillRate, perToken: 1 / (r.PrefillRate * power), base: r.PrefillBase, hit: r.trust(), bend: max(r.Attention, 0) / kilo, slope: r.StepSlope, context: r.StepContext, later: float32(max(w.Later, 0)), id: w.ID}
	v.adapters = v.adapters || w.Adapter != AdapterNone
	v.pooled = v.pooled || w.Pools != 0
}

// Resume takes over the turns of an older view, so that replacing the snapshot does not start them anew.
func (v *View) Resume(old *View) {
	if old == nil {
		return
	}
	v.cursor = old.cursor
	credit := make(map[int32]float64, len(old.Workers))
	for i := range old.Workers {
		credit[old.Workers[i].ID] = old.turns[i]
	}
	for i := range v.Workers {
		v.turns[i] = credit[v.Workers[i].ID]
	}
}

// seqs are the sequences on a worker, ours and others'.
func (v *View) seqs(at int32) float64 { return float64(v.Ledger.accounts[v.brief[at].id].seqs()) }
