package regional

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/regional/routing"
)

// Outcomes of streams interrupted below, as metric labels; the reason label is why one was not resumed.
const (
	resumeResumed      = "resumed" // another zone or region continued it
	resumeEnded        = "ended"   // only its end was missing
	resumeFailed       = "failed"  // the continuation failed
	resumeNotResumable = "not"     // it was not resumed here
)

// tierName names this tier in the trailer of streams that it resumed.
const tierName = "regional"

// resumption is the state for resuming a request's stream; the splicer is nil when the stream cannot be resumed.
type resumption struct {
	splicer            *resume.Splicer
	notResumableReason resume.NotResumableReason // why splicer is nil
	startedElsewhere   bool                      // another endpoint sent the beginning, and the prompt was counted there
	continuing         bool                      // the client has the beginning: the next response is appended to it
	promptTokens       int                       // estimated tokens of the client's original prompt
}

// prepareResume prepares a stream for the loss of its zone or region. After the loss of a worker the zone resumes
// the stream itself, if it can.
func (j *requestLoop) prepareResume() {
	g, q := j.g, j.q
	if !q.env.Stream || q.noGeneratedText {
		return
	}
	q.resumption.startedElsewhere = q.hop.ContinuedTokens > 0
	text, allowed := q.policy.spec.ResumeLimit(q.tenant.Name)
	if !allowed {
		q.resumption.notResumableReason = resume.Forbidden
		return
	}
	e, why := resume.ExamineRequest(q.raw, stripQuery(q.path), q.hop.ContinuedTokens > 0)
	if q.resumption.notResumableReason = why; why != resume.Resumable {
		return
	}
	e.WantsUsage = e.WantsUsage || q.hop.AskUsage
	q.resumption.promptTokens = q.query.PromptTokens
	q.resumption.splicer = resume.NewSplicer(e, q.raw, q.model.BytesPerToken, resume.SpliceLimits{MaxTextBytes: text, Storage: g.textStore})
}

// resumeStream turns the request into one for the rest of an interrupted stream, to be sent elsewhere. It returns
// false when that is not possible; then the stream is ended.
func (j *requestLoop) resumeStream(d *routing.RouteDecision, res forward.Result) bool {
	g, w, q := j.g, j.w, j.q
	seam := q.resumption.splicer
	switch {
	case g.terminating.Load():
		return j.breakStream(d, res, resumeNotResumable, resume.NoEndpoint)
	case seam.WhyNotResumable() == resume.AlreadyResumed:
		return j.breakStream(d, res, resumeFailed, resume.AlreadyResumed)
	case q.hop.Deaths > 1:
		return j.breakStream(d, res, resumeNotResumable, resume.WorkerDeaths)
	case !g.router.takeResume(time.Now(), int(g.inFlight.Load())):
		return j.breakStream(d, res, resumeNotResumable, resume.NoRetryBudget)
	}
	body, end := seam.CutStream(q.model.OutputLimit, q.resumption.promptTokens)
	if end != nil {
		forward.MarkResumed(w, tierName)
		_ = g.localForwarder.AppendEvents(w, end, q.hop.AskUsage && !q.fromPeer) // the client may have disconnected
		g.metrics.resumes.WithLabelValues(resumeEnded, "").Inc()
		res.Outcome, res.Err = forward.Completed, nil
		g.bookResumedUsage(q)
		j.finishRequest(d, res)
		return false
	}
	env := q.env
	if body == nil || openai.ScanChat(body, &env) != nil {
		return j.breakStream(d, res, resumeNotResumable, seam.WhyNotResumable())
	}
	env.Model = q.env.Model // the name that the client used
	q.raw, q.env, q.modelPinned, q.retryCause = body, env, true, retryCauseResumed
	q.setModel(q.model)
	q.resumption.continuing = true
	n := seam.CountTokens()
	q.hop.ContinuedTokens, q.hop.RetriesLeft, q.hop.MaxTokens = q.hop.ContinuedTokens+n, 1, env.MaxTokens
	q.hop.PromptTokens += n
	q.query.PromptTokens += n
	q.query.MaxTokens = max(q.query.MaxTokens-n, 1)
	q.query.ExcludeEndpoint(d.Endpoint)
	return true
}

// retryCauseResumed is the retry cause in the log for a resumed stream.
const retryCauseResumed = "resumed"

// breakStream ends a stream that is not continued. To a peer's gateway this signals that it may continue the
// stream elsewhere.
func (j *requestLoop) breakStream(d *routing.RouteDecision, res forward.Result, outcome string, why resume.NotResumableReason) bool {
	g, w, q := j.g, j.w, j.q
	g.metrics.resumes.WithLabelValues(outcome, string(why)).Inc()
	g.localForwarder.WriteBreak(w, q.resumption.splicer)
	g.bookResumedUsage(q)
	if res.Status == 0 {
		res.Status = http.StatusOK // the status that the client received at the start of the stream
	}
	res.Outcome, res.ReachedClient = forward.StreamBroken, true
	q.resumption.splicer, q.resumption.notResumableReason = nil, resume.AlreadyResumed
	j.finishRequest(d, res)
	return false
}

// countBrokenStream counts an interrupted stream that could not be resumed, by its cause.
func (j *requestLoop) countBrokenStream(res *forward.Result) {
	g, q := j.g, j.q
	switch {
	case !res.IsTruncated() || res.Outcome == forward.BrokenOff:
	case q.resumption.continuing && q.resumption.splicer != nil:
		g.metrics.resumes.WithLabelValues(resumeFailed, string(resume.AlreadyResumed)).Inc()
	case q.resumption.splicer != nil:
		g.metrics.resumes.WithLabelValues(resumeNotResumable, string(q.resumption.splicer.WhyNotResumable())).Inc()
	case !q.resumption.continuing && q.resumption.notResumableReason != resume.AlreadyResumed:
		g.metrics.resumes.WithLabelValues(resumeNotResumable, string(q.resumption.notResumableReason)).Inc()
	}
}

// stripQuery returns a path without its query.
func stripQuery(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}

// writeRetriesLeft reports to the tier above whether the request's single retry is left.
func (q *gatewayRequest) writeRetriesLeft(w http.ResponseWriter) {
	w.Header().Set(forward.HeaderRetriesLeft, strconv.Itoa(q.hop.RetriesLeft))
}

// applyRetriesLeft applies what the endpoint below left of the request's single retry.
func (q *gatewayRequest) applyRetriesLeft(res *forward.Result) {
	if res.Refusal == nil {
		return
	}
	if n, err := strconv.Atoi(res.Refusal.Header.Get(forward.HeaderRetriesLeft)); err == nil && n >= 0 {
		q.hop.RetriesLeft = min(q.hop.RetriesLeft, n)
	}
}

// newResumeCounter returns the counter of interrupted streams.
func newResumeCounter(r prometheus.Registerer, texts *forward.TextStore) (*prometheus.CounterVec, error) {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "spillway_regional_resumes_total",
		Help: "Streams whose zone or peer region failed, by outcome (resumed, ended: only the end was missing, failed, not: not attempted) and the reason if not resumed.",
	}, []string{"outcome", "reason"})
	if err := r.Register(c); err != nil {
		return nil, err
	}
	return c, r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_regional_resume_text_bytes", Help: "Text of open streams stored for resuming them, in bytes.",
	}, func() float64 { return float64(texts.HeldBytes()) }))
}
