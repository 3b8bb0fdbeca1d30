package pick

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/explain"
)

// Choose picks the worker for q, or says by the verdict's reason why there is none. It allocates nothing when rec is nil.
func Choose(q *Query, v *View, now time.Time, rng *rand.Rand, rec *explain.Record) (Verdict, bool) {
	v.looking = false
	return v.choose(q, now, rng, rec)
}

// Look says what Choose would, without taking anybody's turn.
func Look(q *Query, v *View, now time.Time, rng *rand.Rand, rec *explain.Record) (Verdict, bool) {
	v.looking = true
	return v.choose(q, now, rng, rec)
}

func (v *View) choose(q *Query, now time.Time, rng *rand.Rand, rec *explain.Record) (Verdict, bool) {
	v.ask(q, now, rng)
	rule := v.Policy.rule()
	if rec.On() {
		rec.Policy = rule.name
		rec.Query = fmt.Sprintf("prompt=%d output=%d class=%s", q.PromptTokens, q.OutputTokens, q.Class)
	}
	v.settle()
	v.known = v.Index != nil && len(q.Blocks) > 0 && q.PromptBytes > 0 && v.Index.match(q.Blocks)
	v.match()
	v.pruning = v.Policy == Predictive && !q.Guest && q.Step <= 0 && !rec.On()
	reason := v.among(rec)
	if q.Guest && len(v.cands) > 0 {
		v.hosts(rec)
		reason = ReasonBusy
	}
	if len(v.cands) > 0 && !v.timely(rec) {
		reason = ReasonBusy
	}
	if len(v.cands) == 0 {
		rec.Choose("", reason)
		return Verdict{Index: -1, ID: -1, Reason: reason}, false
	}
	v.credit()
	if v.adapters && v.Policy != Predictive {
		v.preferAdapters()
	}
	at := rule.choose(v)
	w := &v.Workers[at]
	if rec.On() {
		v.record(rule, rec)
		rec.Choose(w.Name, rule.reason)
	}
	out := Verdict{Index: int(at), ID: w.ID, Reason: rule.reason, Seconds: v.ttft(at), Cached: int64(v.cached[at]), Known: int64(v.cached[at])}
	if v.furthest(w.ID) {
		out.Known -= int64(v.beyond)
		out.Furthest, out.Alone = true, v.Index.alone
	}
	return out, true
}

// asked is the request that is being placed, in the units that costs are reckoned in.
type asked struct {
	q       *Query
	when    time.Time
	now     int64 // by the ledger's clock, in nanoseconds
	rng     *rand.Rand
	prompt  int64
	answer  int64   // expected, in tokens
	longest int64   // of its sequences' prompts
	need    int64   // KV cache, in tokens
	sure    int64   // tokens of its longest prompt that are beyond doubt
	uncut   float64 // prompt in tokens
	out     float64 // expected output in tokens
	context float64 // mean context while it decodes, in thousands of tokens
	patient float64 // how long a backlog may be, in seconds; 0 for any
}

// maxAsk bounds the tokens of a request, far above any engine's context, so that sums cannot overflow.
const maxAsk = 1 << 40

func (v *View) ask(q *Query, now time.Time, rng *rand.Rand) {
	prompt := max(0, min(q.PromptTokens, maxAsk))
	out := max(0, min(q.OutputTokens, maxAsk))
	v.asked = asked{
		q: q, when: now, now: v.Ledger.clock(now), rng: rng, prompt: prompt, answer: out, longest: min(q.longest(), maxAsk), need: min(q.KV(), 2*maxAsk),
		sure: min(q.longest(), maxAsk) * 4 / 5, uncut: float64(prompt), out: float64(out), context: (float64(prompt) + float64(out)/2) / kilo, patient: max(q.MaxWait, 0).Seconds(),
	}
}

// screen fills v.cands with the workers that have room, and names the best hope when there is none. A worker of whom
// something impossible is believed is a candidate only when there is no other.
func (v *View) screen(rec *explain.Record) string {
	v.cands, v.odd = v.cands[:0], v.odd[:0]
	v.best, v.limit = math.Inf(1), math.Inf(1)
	reason, pooled := ReasonNoWorker, len(v.gates) == 0
	for i := range v.gates {
		if v.pruning && v.least(i) > v.limit {
			continue
		}
		drop := dropNot
		if v.walled {
			drop = v.barred(i)
		}
		if drop == dropNot {
			drop = v.room(i)
			pooled = true
		}
		if drop == dropNot {
			if v.gates[i].odd {
				v.odd = append(v.odd, int32(i))
			} else {
				v.cands = append(v.cands, int32(i))
				if v.pruning {
					v.found(int32(i))
				}
			}
			continue
		}
		if rec.On() {
			rec.Candidate(v.Workers[i].Name).Drop(v.dropped(i, drop))
		}
		switch drop {
		case dropSlots, dropKV, dropLong, dropBacklog, dropTrial:
			reason = ReasonBusy
		case dropNever:
			if reason == ReasonNoWorker {
				reason = ReasonTooLong
			}
		}
	}
	if !pooled {
		reason = ReasonNoPool
	}
	if len(v.cands) == 0 {
		v.cands, v.odd = v.odd, v.cands
	}
	for _, at := range v.odd {
		if rec.On() {
			rec.Candidate(v.Workers[at].Name).Drop(dropOdd.String())
		}
	}
	return reason
}

// spare is the part of the KV cache, as its inverse, that a tenant over its share leaves to the others. Less than a fifth
// does not hold the longest of their prompts on small GPUs, and they wait for answers to end.
const spare = 5

// drop is what keeps a worker from being a candidate.
type drop uint8

const (
	dropNot      drop = iota // nothing: it has room
	dropDown                 // Worker.Down says why
	dropExcluded             // it failed this request
	dropTrial
	dropSlots
	dropKV
	dropLong
	dropBacklog
	dropNever
	dropOdd
	dropGone
	dropKept  // it is set apart for a pool
	dropApart // it is not
	dropGuest // others would notice
	dropStep  // its tokens would come too far apart
)

// String is the drop in records.
func (d drop) String() string {
	return [...]string{
		"", "down", "failed this request", "on trial", "no free sequence", "no free KV cache", "long prompts have their share",
		"prefill backlog over the target", "longer than the worker takes", "what is believed of it cannot be", "not in the ledger",
		"set apart for a pool that the request is not of", "not of the request's pool",
		"its tenant has its part, and others would notice", "the tokens would come further apart than was asked for",
	}[d]
}

func (v *View) dropped(at int, d drop) string {
	if d == dropDown {
		return v.Workers[at].Down
	}
	return d.String()
}

// room says why worker at has no room for the request now.
func (v *View) room(at int) drop {
	b := &v.gates[at]
	if b.down {
		return dropDown
	}
	if len(v.q.Exclude) > 0 && slices.Contains(v.q.Exclude, b.id) {
		return dropExcluded
	}
	// An estimate may be a quarter too long, and what might fit must reach the engine, which counts exactly.
	if v.sure >= b.longest {
		return dropNever
	}
	a := v.Ledger.account(b.id)
	if a == nil {
		return dropGone
	}
	back := a.backlogAt(v.now, b.rate)
	seqs := a.seqs()
	if late := a.late(v.now, b.rate, b.base); late > 0 {
		back += late * b.rate
	}
	load := &v.loads[at]
	load.back, load.count, load.held, load.tight = back, float64(seqs), float64(a.heldKV())/kilo, false
	if b.trials > 0 && a.running >= b.trials {
		return dropTrial
	}
	if seqs == 0 {
		return dropNot
	}
	if seqs >= int64(b.slots) {
		return dropSlots
	}
	if b.kv > 0 {
		held := a.heldKV()
		most := b.promised(a.foreignKV)
		if v.q.Timed || v.q.Spare {
			most = min(most, b.kv)
		}
		if v.q.Spare {
			most -= most / spare
		}
		if held+v.need > most && held+v.need-v.alike(at, true) > most {
			return dropKV
		}
		load.tight = held+v.prompt+v.answer > b.kv-b.kv/10 && held+v.prompt+v.answer-v.alike(at, true) > b.kv-b.kv/10
		if isLong(v.need, b.kv) {
			if l := v.Ledger.slots[b.id].longKV; l > 0 && l+v.need-v.there(at, b.id) > v.longKV(b.kv) {
				return dropLong
			}
		}
	}
	if v.patient > 0 && back-v.spared(at, b.id) > v.patience(b)*b.trusted {
		return dropBacklog
	}
	return dropNot
}

// spared is the part of the prompt that the worker holds, as far as such beliefs have been true, as work. What a worker need
// not compute may be waited for there: elsewhere the same time goes into computing it, and another cache into keeping it.
func (v *View) spared(at int, id int32) float64 {
	if !v.known {
		return 0
	}
	b := &v.lanes[at]
	had := float64(v.held(id)) * b.hit
	return bent(v.uncut, 0, b.bend) - bent(v.uncut-had, had, b.bend)
}

// patience is how long a worker's backlog may be, in seconds. While others wait too it is no longer than what keeps the
// worker busy, for what is in an engine nobody can overtake; but a worker that holds most of the prompt is worth its wait.
func (v *View) patience(b *gate) float64 {
	if !v.q.Contended || v.known && 2*blockEnd(v.Index.matched(b.id)) >= v.q.PromptBytes {
		return v.patient
	}
	return min(v.patient, feed)
}

// isLong says whether a request is so large for its worker that it may hold only a share of it.
func isLong(need, total int64) bool { return need > total/4 }

// match fills v.worth, where anybody holds the beginning of the prompt.
func (v *View) match() {
	if !v.known {
		return
	}
	q := v.q
	perByte := v.uncut / float64(q.PromptBytes)
	for n := range min(len(q.Blocks), MaxBlocks) + 1 {
		v.worth[n] = cachedTokens(n, perByte, v.prompt)
	}
	v.further()
}

// credit fills v.cached for the candidates.
func (v *View) credit() {
	for _, at := range v.cands {
		v.cached[at] = v.held(v.gates[at].id)
	}
}

// held is how much of the prompt a worker has, in tokens.
func (v *View) held(id int32) int32 {
	if !v.known {
		return 0
	}
	return v.worth[min(v.Index.matched(id), MaxBlocks)]
}

// cachedTokens turns matched blocks into prompt tokens. A hit never covers the last token: the engine must compute it.
func cachedTokens(blocks int, perByte float64, prompt int64) int32 {
	if blocks == 0 {
		return 0
	}
	return int32(max(0, min(int64(float64(blockEnd(blocks))*perByte), prompt-1, 1<<30)))
}
