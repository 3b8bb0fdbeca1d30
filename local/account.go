package local

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/local/engine"
	"github.com/spillway-lb/spillway/local/health"
	"github.com/spillway-lb/spillway/local/pick"
)

// begin arms an attempt: from now on it can be given up from outside.
func (f *floor) begin(at *attempt, cancel context.CancelCauseFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at.cancel = cancel
	if f.ending {
		cancel(errStopping)
	}
}

// firstByte books the prefill as done, and learns from a stream's how fast the worker is: its last byte may be a minute away.
func (f *floor) firstByte(at *attempt, stream bool, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at.first = now
	if at.hedge {
		f.index.Insert(at.worker.id, at.visit.query.Blocks) // not before: one that is outrun leaves nothing to find
	}
	at.worker.breaker.Progress(now)
	at.worker.deep.Heard(now)
	if at.visit.env.Stream {
		at.worker.latency.Observe(int64(at.seqs), now.Sub(at.sent).Seconds(), now)
	}
	f.ledger.FirstByte(&at.entry, now)
	at.before = f.ledger.Prefilled(at.worker.id)
	if stream {
		at.worker.breaker.Took(at.slowness(), now)
		at.timed(now)
		at.worker.refresh(now)
	}
	f.serve(at.pool, now)
}

// prefilled books the prefill of an answer that is no stream, by prediction: its first byte comes only with its last.
func (f *floor) prefilled(at *attempt) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.ledger.FirstByte(&at.entry, now)
	f.serve(at.pool, now)
}

// progress books that a worker is emitting.
func (f *floor) progress(at *attempt, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	at.worker.breaker.Progress(now)
}

// end books an attempt out, learns from it, and gives its room to whoever waits.
func (f *floor) end(at *attempt, m *meter, res *relay.Result, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := at.worker
	load := f.ledger.Load(w.id, 0, now)
	f.ledger.Finish(&at.entry, now)
	if !at.loose {
		w.breaker.Ended()
	}
	w.open--
	w.ended(at.pool.model, now)
	delete(w.attempts, at)
	at.over = true
	if !res.Outrun {
		at.pool.queue.Settle(&at.visit.item, at.spent(m, res)) // of two attempts the one that answered is charged
	}
	f.surprised(at, res, now)
	f.judge(at, m, res, now)
	f.recordDeath(at, m, res, now)
	if res.Err == nil && res.Status/100 == 2 {
		f.learn(at, m, load)
		f.claim(at, m.usage(), now)
	}
	at.settle()
	w.refresh(now)
	f.release(w)
	f.serve(at.pool, now)
}

// judge tells the breaker how an attempt went. Only what speaks of the worker counts: a failed dial, a lost connection or
// no HTTP under a request whose body was read here, and error answers as health.Classify reads them. What a client brings
// about by asking for something that the worker does not have is no failure of the worker.
func (f *floor) judge(at *attempt, m *meter, res *relay.Result, now time.Time) {
	w, v := at.worker, at.visit
	switch {
	case res.ClientGone, res.NotStarted, res.Outrun, res.Late, errors.Is(res.Err, errZoneDrained), errors.Is(res.Err, errStopping), errors.Is(res.Err, errRequest):
	case res.Failure != nil:
		f.judgeError(w, http.StatusInternalServerError, eventData(res.Failure), v.body, now)
	case v.through != nil && res.Err != nil:
		if unreachable(res.Err) && (v.kind != relay.GRPC || w.declared.GRPC == "") {
			w.blame = blame{health.Refused, engine.Cause(res.Err, w.access())}
			f.eject(w, health.Refused, now)
		}
	case res.Refused != nil:
		f.judgeError(w, res.Status, res.Refused.Body, v.body, now)
	case res.Answered: // it does not go on with another worker's stream
	case res.Err != nil:
		w.blame = blame{health.Refused, engine.Cause(res.Err, w.access())}
		f.eject(w, health.Refused, now)
	case res.Status >= 500:
		f.judgeError(w, res.Status, m.errorBody, v.body, now)
	default:
		w.breaker.OK(now)
	}
}

// judgeError books an error answer to a request of which the body is known; nil when it is not.
func (f *floor) judgeError(w *worker, status int, answer, request []byte, now time.Time) {
	k, ok := health.Classify(status, answer, request)
	switch {
	case ok:
		w.blame = blame{k, "a request was answered with status " + strconv.Itoa(status)}
		f.eject(w, k, now)
		if k == health.OOM {
			w.overcommit.OutOfMemory(now)
		}
	case overloads(status):
		w.breaker.Overloaded(now)
	}
}

// overloads reports whether a status says that the worker has no room, and not what is wrong with the request.
func overloads(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

// eventData is the data of a server-sent event that has one line of it.
func eventData(ev []byte) []byte {
	return bytes.TrimSpace(bytes.TrimPrefix(bytes.TrimSpace(ev), []byte("data:")))
}

// leastCounted is the shortest estimate, in tokens, from which the ratio of counted to estimated tokens is learned. A shorter
// prompt is mostly its chat template, of ten tokens and more, and says nothing about longer ones.
const leastCounted = 64

// learn takes what an answer says of its worker and of its model's answers.
func (f *floor) learn(at *attempt, m *meter, atEnd pick.Load) {
	w, p, v := at.worker, at.pool, at.visit
	usage := m.usage()
	out := float64(m.stream.Events)
	if usage.Stated {
		out = float64(usage.Completion)
		if usage.Prompt > 0 && v.estimate >= leastCounted && v.env.Images == 0 {
			p.counted.add(float64(usage.Prompt) / float64(v.estimate))
		}
		w.cachedOK = w.cachedOK || usage.Cached > 0
		if w.cachedOK {
			w.learner.Hit(float64(at.choice.Known), float64(usage.Cached))
			if at.choice.Furthest {
				p.onward.Learn(at.choice.Alone, at.choice.Known, int64(usage.Cached), int64(usage.Prompt))
			}
		}
		at.retimed(cmp.Or(int64(usage.Prompt), v.query.PromptTokens), int64(usage.Cached))
	}
	if out > 0 {
		f.lengths.Observe(v.model, v.hop.Tenant, v.query.PromptTokens, int64(out)/int64(max(v.env.N, 1)))
	}
	if !m.events || at.first.IsZero() {
		return
	}
	if out >= 8 {
		seqs := float64(atEnd.Running + atEnd.ForeignSeqs)
		held := float64(atEnd.KV + atEnd.ForeignKV)
		w.learner.Step((at.seqs+seqs)/2, (at.held+held)/2, f.decoding(at)/(out-1))
	}
}

// earn saves up the request's share of a retry.
func (f *floor) earn() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.budget = min(f.budget+f.orders.retryBudget(), retryBurst)
}

// spend takes a whole retry for a visit, if there is one and some worker that has not failed the visit could take it.
func (f *floor) spend(v *visit, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.budget < 1 || f.closed(now) || !f.elsewhere(v) {
		return false
	}
	f.budget--
	return true
}

func (f *floor) elsewhere(v *visit) bool {
	p := f.pools[v.model]
	if p == nil {
		return false
	}
	ws := p.view.Workers
	return slices.ContainsFunc(ws, func(w pick.Worker) bool {
		return w.Down == "" && v.query.For(&w) && !slices.Contains(v.query.Exclude, w.ID)
	})
}

func observation(r *engine.Reading, meanPrompt int64) pick.Observation {
	return pick.Observation{Running: r.Running, Waiting: r.Waiting, KVUsed: r.KVUsed(), MeanPrompt: meanPrompt}
}

// unreachable says that a request cannot have reached the worker.
func unreachable(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
