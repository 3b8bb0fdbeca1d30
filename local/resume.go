package local

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/poison"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/local/engine"
)

// What became of streams that broke off, as the metric says; the reason is why one was not resumed.
const (
	resumeResumed = "resumed" // another worker went on
	resumeEnded   = "ended"   // nothing but its end was missing
	resumeFailed  = "failed"  // nobody went on after all
	resumeNot     = "not"     // it was not resumed here
)

// tierName stands in the trailer of streams that this tier resumed.
const tierName = "local"

// resumption is what a visit needs so that its stream can be resumed; nil seam when it cannot be.
type resumption struct {
	seam   *resume.Seam
	why    resume.Reason // there is no seam
	joined bool          // the client has the beginning: what comes is added to it
	prompt int           // tokens of the prompt as the client sent it
	unfit  []int32       // workers whose engines cannot go on with an answer
}

// follow prepares a stream for the loss of its worker.
func (a *Agent) follow(v *visit, o *orders) {
	if !v.env.Stream {
		return
	}
	limit, allowed := o.spec.Resumes(v.hop.Tenant)
	if !allowed {
		v.stream.why = resume.Forbidden
		return
	}
	body := v.body
	if v.capped > 0 { // the rest is to keep to it
		whole := v.goes()
		body = whole.Bytes()
	}
	q, why := resume.Examine(body, v.r.URL.Path, v.hop.Continues > 0)
	if v.stream.why = why; why != resume.None {
		return
	}
	q.Usage = q.Usage || v.hop.AskUsage
	v.stream.prompt = int(v.estimate)
	v.stream.seam = resume.New(q, body, o.bytesPerToken(v.model), resume.Bounds{Text: limit, Store: a.vault})
}

// resume books a stream that was cut for another worker; false when that is not to be, and the stream is ended.
func (a *Agent) resume(w http.ResponseWriter, v *visit, res *relay.Result) bool {
	why := a.mayResume(v, res)
	if why == resume.NoPlace && a.awaitFit(v) {
		why = a.mayResume(v, res)
	}
	if why == resume.Spent {
		a.breakOff(w, v, resumeFailed, why)
		return false
	} else if why != resume.None {
		a.breakOff(w, v, resumeNot, why)
		return false
	}
	body, end := v.stream.seam.Cut(0, v.stream.prompt)
	switch {
	case end != nil:
		a.meters.resume(resumeEnded, resume.None)
		a.account(v)
		relay.MarkResumed(w, tierName)
		_ = a.forward.Append(w, end, a.cfg.Plain && !v.env.IncludeUsage) // a client that has left needs no end
		return false
	case body == nil:
		a.breakOff(w, v, resumeNot, v.stream.seam.Why())
		return false
	}
	before := v.env
	if v.body = body; openai.Scan(body, &v.env) != nil {
		v.env = before
		a.breakOff(w, v, resumeNot, resume.Text)
		return false
	}
	v.estimate += int64(v.stream.seam.Tokens())
	v.env.Model, v.capped = before.Model, 0
	v.ask(a.policy.Load(), a.cfg.Plain)
	v.query.Blocks = nil
	v.retries, v.stream.joined = 1, true
	return true
}

// mayResume says why a stream that was cut may not go on here; None when it may, and a retry is taken out of the budget.
func (a *Agent) mayResume(v *visit, res *relay.Result) resume.Reason {
	f := a.floor
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(res.Err, errZoneDrained) || errors.Is(res.Err, errStopping) {
		return resume.NoPlace
	}
	return f.mayResume(v, time.Now())
}

func (f *floor) mayResume(v *visit, now time.Time) resume.Reason {
	switch {
	case v.stream.joined:
		return resume.Spent
	case f.closed(now):
		return resume.NoPlace
	}
	if why := f.suits(v); why != resume.None {
		return why
	}
	switch {
	case f.budget >= 1:
		f.budget--
	case !f.losses.Take(now, f.streams()):
		return resume.Budget
	}
	return resume.None
}

// suits leaves out workers whose engines cannot go on with an answer, and says why none of the others can: None when one can,
// NoPlace when those that could are down, Engine when there are none.
func (f *floor) suits(v *visit) resume.Reason {
	p := f.pools[v.model]
	if p == nil {
		return resume.Engine
	}
	chat := v.r.URL.Path == openai.PathChat
	v.stream.unfit = v.stream.unfit[:0]
	for i, w := range p.workers {
		if !engine.Continues(w.speaks(), chat) {
			v.stream.unfit = append(v.stream.unfit, p.view.Workers[i].ID)
		}
	}
	v.shun()
	why := resume.Engine
	for i := range p.view.Workers {
		x, w := &p.view.Workers[i], p.workers[i]
		switch {
		case !v.query.For(x) || slices.Contains(v.query.Exclude, x.ID):
		case x.Down == "":
			return resume.None
		case !w.drained && !w.gone && w.elsewhere == "":
			why = resume.NoPlace
		}
	}
	return why
}

// speaks is the engine's name; while that is not known again, the one that was at its address before.
func (w *worker) speaks() string {
	if name := w.engine.Name(); name != engine.NameAuto {
		return name
	}
	return w.before
}

// awaitFit waits for a worker that can go on with a stream and is down at present, as when it has just restarted. A zone behind
// a gateway does not wait: the gateway may have another place at once.
func (a *Agent) awaitFit(v *visit) bool {
	if !a.cfg.Plain {
		return false
	}
	f := a.floor
	f.mu.Lock()
	limit := time.NewTimer(f.patience(v))
	f.mu.Unlock()
	defer limit.Stop()
	tick := time.NewTicker(patrolEvery)
	defer tick.Stop()
	for {
		f.mu.Lock()
		why := f.suits(v)
		if f.closed(time.Now()) || f.ending {
			why = resume.Engine
		}
		f.mu.Unlock()
		if why != resume.NoPlace {
			return why == resume.None
		}
		select {
		case <-v.r.Context().Done():
			return false
		case <-a.ctx.Done():
			return false
		case <-limit.C:
			return false
		case <-tick.C:
		}
	}
}

// streams is how many answers are under way.
func (f *floor) streams() (n int) {
	for _, w := range f.workers {
		n += w.open
	}
	return n
}

// shun writes down whom the visit must not go to.
func (v *visit) shun() {
	v.query.Exclude = append(v.excluded[:2:2], v.stream.unfit...)
}

// goesOn refuses the continuation of another place's stream that nobody here can go on with.
func (a *Agent) goesOn(v *visit) *openai.Error {
	if v.hop.Continues == 0 {
		return nil
	}
	a.floor.mu.Lock()
	defer a.floor.mu.Unlock()
	if a.floor.suits(v) != resume.None {
		return openai.NoCapacity(v.model, openai.MinRetryAfter)
	}
	return nil
}

// breakOff ends a stream that nobody goes on with. The gateway may find somebody who does.
func (a *Agent) breakOff(w http.ResponseWriter, v *visit, outcome string, why resume.Reason) {
	a.meters.resume(outcome, why)
	a.account(v)
	if v.fate == poison.Suspect && !a.cfg.Plain && v.stream.seam.Failure() == nil {
		_ = a.forward.Append(w, relay.EventOf(w, openai.WorkerCrashed()), false) // a client that has left needs no end
		return
	}
	a.forward.Break(w, v.stream.seam)
}

// lost counts a stream that broke off and could not be resumed for what it is.
func (a *Agent) lost(v *visit, res *relay.Result) {
	switch {
	case !res.Truncated || res.Cut || res.ClientGone || !res.Events:
	case v.stream.joined:
		a.meters.resume(resumeFailed, resume.Spent)
	case v.stream.seam != nil:
		a.meters.resume(resumeNot, v.stream.seam.Why())
	default:
		a.meters.resume(resumeNot, v.stream.why)
	}
}

// account counts the tokens of a stream's whole answer, once.
func (a *Agent) account(v *visit) { a.charge(v, v.stream.seam.Usage(v.stream.prompt)) }

// charge counts what an answer used. The prompt of one that goes on with another place's was counted there.
func (a *Agent) charge(v *visit, u openai.Usage) {
	if v.hop.Continues > 0 {
		u.Prompt, u.Cached = 0, 0
	}
	a.meters.spent(v, u)
}

// newResumes is the counter of streams that broke off.
func newResumes(r prometheus.Registerer, a *Agent) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_local_resumes_total",
		Help: "Streams whose worker was lost, by what became of them (resumed, ended: only the end was missing, failed, not) and why they were not resumed.",
	}, []string{"outcome", "reason"})
	r.MustRegister(c, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_local_resume_text_bytes", Help: "Texts of open streams that are kept so that they can be resumed.",
	}, func() float64 { return float64(a.vault.Held()) }))
	return c
}

func (m *meters) resume(outcome string, why resume.Reason) {
	m.resumes.WithLabelValues(outcome, string(why)).Inc()
}
