package regional

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/resume"
)

// What became of streams that broke off below, as the metric says; the reason is why one was not resumed.
const (
	resumeResumed = "resumed" // another zone or region went on
	resumeEnded   = "ended"   // nothing but its end was missing
	resumeFailed  = "failed"  // nobody went on after all
	resumeNot     = "not"     // it was not resumed here
)

// tierName stands in the trailer of streams that this tier resumed.
const tierName = "regional"

// resumption is what a request needs so that its stream can be resumed; nil seam when it cannot be.
type resumption struct {
	seam   *resume.Seam
	why    resume.Reason // there is no seam
	guest  bool          // the beginning came from another place, where its prompt was counted
	joined bool          // the client has the beginning: what comes is added to it
	prompt int           // tokens of the prompt as the client sent it, as estimated
}

// follow prepares a stream for the loss of its zone or region. A worker's loss the zone mends itself, if it can.
func (g *Gateway) follow(q *request) {
	if !q.env.Stream || q.infer {
		return
	}
	q.stream.guest = q.hop.Continues > 0
	text, allowed := q.state.spec.Resumes(q.tenant.Name)
	if !allowed {
		q.stream.why = resume.Forbidden
		return
	}
	e, why := resume.Examine(q.raw, pathOf(q.path), q.hop.Continues > 0)
	if q.stream.why = why; why != resume.None {
		return
	}
	e.Usage = e.Usage || q.hop.AskUsage
	q.stream.prompt = q.query.PromptTokens
	q.stream.seam = resume.New(e, q.raw, q.model.BytesPerToken, resume.Bounds{Text: text, Store: g.vault})
}

// resume makes the request one for the rest of a stream that was cut, to be sent elsewhere; false when that is not to be,
// and the stream is ended.
func (g *Gateway) resume(w http.ResponseWriter, q *request, c choice, res relay.Result) bool {
	seam := q.stream.seam
	switch {
	case g.ending.Load():
		return g.breakOff(w, q, c, res, resumeNot, resume.NoPlace)
	case seam.Why() == resume.Spent:
		return g.breakOff(w, q, c, res, resumeFailed, resume.Spent)
	case q.hop.Deaths > 1:
		return g.breakOff(w, q, c, res, resumeNot, resume.Kills)
	case !g.mayRetry() && !g.mayLose():
		return g.breakOff(w, q, c, res, resumeNot, resume.Budget)
	}
	body, end := seam.Cut(q.model.OutputLimit, q.stream.prompt)
	if end != nil {
		relay.MarkResumed(w, tierName)
		_ = g.locals.Append(w, end, q.hop.AskUsage && !q.peer) // a client that has left needs no end
		g.metrics.resumes.WithLabelValues(resumeEnded, "").Inc()
		res.Err, res.Truncated, res.Cut = nil, false, false
		g.account(q)
		g.end(w, q, c, res)
		return false
	}
	env := q.env
	if body == nil || openai.Scan(body, &env) != nil {
		return g.breakOff(w, q, c, res, resumeNot, seam.Why())
	}
	env.Model = q.env.Model // as the caller named it
	q.raw, q.env, q.settled, q.retried = body, env, true, tierResumed
	q.become(q.model)
	q.stream.joined = true
	n := seam.Tokens()
	q.hop.Continues, q.hop.RetriesLeft, q.hop.MaxTokens = q.hop.Continues+n, 1, env.MaxTokens
	q.hop.PromptTokens += n
	q.query.PromptTokens += n
	q.query.MaxTokens = max(q.query.MaxTokens-n, 1)
	q.shun(c.verdict.Endpoint)
	return true
}

// mayLose lets a stream be resumed out of what is allowed for a great loss.
func (g *Gateway) mayLose() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.losses.Take(time.Now(), int(g.inFlight.Load()))
}

// tierResumed stands in the log for why a request was sent twice.
const tierResumed = "resumed"

// shun remembers a place that failed the request.
func (q *request) shun(endpoint string) {
	q.query.Exclude[1], q.query.Exclude[0] = q.query.Exclude[0], endpoint
}

// breakOff ends a stream that nobody goes on with. For a peer's gateway that is the word to go on with it elsewhere.
func (g *Gateway) breakOff(w http.ResponseWriter, q *request, c choice, res relay.Result, outcome string, why resume.Reason) bool {
	g.metrics.resumes.WithLabelValues(outcome, string(why)).Inc()
	g.locals.Break(w, q.stream.seam)
	g.account(q)
	if res.Status == 0 {
		res.Status = http.StatusOK // so the client was told when its stream began
	}
	res.Started, res.Truncated, res.Events, res.Cut = true, true, true, false
	q.stream.seam, q.stream.why = nil, resume.Spent
	g.end(w, q, c, res)
	return false
}

// lost counts a stream that broke off and could not be resumed for what it is.
func (g *Gateway) lost(q *request, res *relay.Result) {
	switch {
	case !res.Truncated || !res.Events:
	case q.stream.joined && q.stream.seam != nil:
		g.metrics.resumes.WithLabelValues(resumeFailed, string(resume.Spent)).Inc()
	case q.stream.seam != nil:
		g.metrics.resumes.WithLabelValues(resumeNot, string(q.stream.seam.Why())).Inc()
	case !q.stream.joined && q.stream.why != resume.Spent:
		g.metrics.resumes.WithLabelValues(resumeNot, string(q.stream.why)).Inc()
	}
}

// account counts the tokens of a resumed stream's whole answer, once.
func (g *Gateway) account(q *request) {
	u := q.stream.seam.Usage(q.stream.prompt)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.used(q, &u, false)
}

// pathOf is a path without its query.
func pathOf(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}

// retriesLeft tells the tier above what is left of the request's one retry.
func (q *request) retriesLeft(w http.ResponseWriter) {
	w.Header().Set(relay.HeaderRetriesLeft, strconv.Itoa(q.hop.RetriesLeft))
}

// heed takes over what the place below left of the request's one retry.
func (q *request) heed(res *relay.Result) {
	if res.Refused == nil {
		return
	}
	if n, err := strconv.Atoi(res.Refused.Header.Get(relay.HeaderRetriesLeft)); err == nil && n >= 0 {
		q.hop.RetriesLeft = min(q.hop.RetriesLeft, n)
	}
}

// newResumes is the counter of streams that broke off.
func newResumes(r prometheus.Registerer, g *Gateway) (*prometheus.CounterVec, error) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_regional_resumes_total",
		Help: "Streams whose zone or peer region was lost, by what became of them (resumed, ended: only the end was missing, failed, not) and why they were not resumed.",
	}, []string{"outcome", "reason"})
	if err := r.Register(c); err != nil {
		return nil, err
	}
	return c, r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_regional_resume_text_bytes", Help: "Texts of open streams that are kept so that they can be resumed.",
	}, func() float64 { return float64(g.vault.Held()) }))
}
