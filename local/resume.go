package local

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/poison"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/local/sched"
)

// Outcomes of interrupted streams in the resumes metric. Its reason label is why a stream was not resumed.
const (
	resumeResumed      = "resumed" // another worker continued it
	resumeEnded        = "ended"   // only its end was missing, which Spillway added
	resumeFailed       = "failed"  // the continuation failed
	resumeNotResumable = "not"     // it was not resumed here
)

// tierName is this tier's name in the trailer of streams that it resumed.
const tierName = "local"

// resumeState is what a request needs so that its stream can be resumed. A nil splicer means that it cannot be.
type resumeState struct {
	splicer            *resume.Splicer
	notResumableReason resume.NotResumableReason // why there is no splicer
	promptTokens       int                       // tokens of the prompt as sent by the client
}

// prepareResume prepares a stream for the loss of its worker.
func (x *attemptRunner) prepareResume(v *zoneRequest, o *zonePolicy) {
	if !v.Envelope.Stream {
		return
	}
	limit, allowed := o.Spec.ResumeLimit(v.Tenant)
	if !allowed {
		v.resume.notResumableReason = resume.Forbidden
		return
	}
	body := v.Body
	if v.imposedLimit > 0 { // the continuation must keep the limit too
		whole := v.buildForwardedBody()
		body = whole.Bytes()
	}
	q, why := resume.ExamineRequest(body, v.httpRequest.URL.Path, v.hop.ContinuedTokens > 0)
	if v.resume.notResumableReason = why; why != resume.Resumable {
		return
	}
	q.WantsUsage = q.WantsUsage || v.hop.AskUsage
	v.resume.promptTokens = int(v.EstimatedTokens)
	v.resume.splicer = resume.NewSplicer(q, body, o.BytesPerToken(v.Model), resume.SpliceLimits{MaxTextBytes: limit, Storage: x.textStore})
}

// resumeStream prepares an interrupted stream for another worker. It returns false when that is not possible; the stream has
// then been ended.
func (x *attemptRunner) resumeStream(w http.ResponseWriter, v *zoneRequest, res *forward.Result) bool {
	why := x.takeResume(v, res)
	if why == resume.NoEndpoint && x.awaitFitWorker(v) {
		why = x.takeResume(v, res)
	}
	if why == resume.AlreadyResumed {
		x.abortStream(w, v, resumeFailed, why)
		return false
	} else if why != resume.Resumable {
		x.abortStream(w, v, resumeNotResumable, why)
		return false
	}
	body, end := v.resume.splicer.CutStream(0, v.resume.promptTokens)
	switch {
	case end != nil:
		x.metrics.countResume(resumeEnded, resume.Resumable)
		x.countStreamUsage(v)
		forward.MarkResumed(w, tierName)
		_ = x.forwarder.AppendEvents(w, end, x.cfg.Plain && !v.Envelope.IncludeUsage) // a client that has left needs no end
		return false
	case body == nil:
		x.abortStream(w, v, resumeNotResumable, v.resume.splicer.WhyNotResumable())
		return false
	}
	before := v.Envelope
	if v.Body = body; openai.ScanChat(body, &v.Envelope) != nil {
		v.Envelope = before
		x.abortStream(w, v, resumeNotResumable, resume.UnusableText)
		return false
	}
	v.EstimatedTokens += int64(v.resume.splicer.CountTokens())
	v.Envelope.Model, v.imposedLimit = before.Model, 0
	v.decideAskUsage(x.policy.Load(), x.cfg.Plain)
	v.Query.Blocks = nil
	v.RetriesLeft, v.Continuing = 1, true
	return true
}

// takeResume returns why an interrupted stream may not continue here. It returns Resumable when it may, and then takes a retry
// out of the budget.
func (x *attemptRunner) takeResume(v *zoneRequest, res *forward.Result) (why resume.NotResumableReason) {
	if errors.Is(res.Err, errZoneDrained) || errors.Is(res.Err, errStopping) {
		return resume.NoEndpoint
	}
	x.scheduler.update(func(s *sched.Scheduler) { why = s.Retries.TakeResume(&v.Request, v.isChat(), time.Now()) })
	return why
}

// isChat reports whether the request is a chat completion.
func (v *zoneRequest) isChat() bool { return v.httpRequest.URL.Path == openai.PathChat }

// resumeWait bounds how long a zone behind a gateway holds an interrupted stream for a worker that is down. A longer wait saves
// streams where no other zone serves the model. Where another zone does, its continuation begins later by that time.
const resumeWait = time.Second

// awaitFitWorker waits for a worker that can continue a stream and is down at present, for example because it restarts. It waits
// at most until the request's deadline, and behind a gateway, which may have another endpoint, for resumeWait.
func (x *attemptRunner) awaitFitWorker(v *zoneRequest) bool {
	var within time.Duration
	x.scheduler.update(func(s *sched.Scheduler) { within = s.MaxQueueWait(&v.Request) })
	if !x.cfg.Plain {
		within = min(within, x.resumeWait)
	}
	if !v.Deadline.IsZero() {
		within = min(within, time.Until(v.Deadline))
	}
	limit := time.NewTimer(within)
	defer limit.Stop()
	tick := time.NewTicker(sched.PatrolInterval)
	defer tick.Stop()
	for {
		var why resume.NotResumableReason
		x.scheduler.update(func(s *sched.Scheduler) { why = s.Retries.AwaitFit(&v.Request, v.isChat(), time.Now()) })
		if why != resume.NoEndpoint {
			return why == resume.Resumable
		}
		select {
		case <-v.httpRequest.Context().Done():
			return false
		case <-x.ctx.Done():
			return false
		case <-limit.C:
			return false
		case <-tick.C:
		}
	}
}

// checkContinuation refuses the continuation of a stream that began elsewhere when no worker here can continue it.
func (x *attemptRunner) checkContinuation(v *zoneRequest) *openai.Error {
	if v.hop.ContinuedTokens == 0 {
		return nil
	}
	var why resume.NotResumableReason
	x.scheduler.update(func(s *sched.Scheduler) { why = s.Retries.ExcludeUnfitWorkers(&v.Request, v.isChat()) })
	if why != resume.Resumable {
		return openai.NoCapacity(v.Model, openai.MinRetryAfter)
	}
	return nil
}

// abortStream ends a stream that no worker here continues. The gateway may find another endpoint for it.
func (x *attemptRunner) abortStream(w http.ResponseWriter, v *zoneRequest, outcome string, why resume.NotResumableReason) {
	x.metrics.countResume(outcome, why)
	x.countStreamUsage(v)
	if v.DeathVerdict == poison.Suspect && !x.cfg.Plain && v.resume.splicer.ErrorEvent() == nil {
		_ = x.forwarder.AppendEvents(w, forward.ErrorEventFor(w, openai.WorkerCrashed()), false) // a client that has left needs no end
		return
	}
	x.forwarder.WriteBreak(w, v.resume.splicer)
}

// countLostStream counts an interrupted stream that was not resumed, with its reason.
func (x *attemptRunner) countLostStream(v *zoneRequest, res *forward.Result) {
	broken := res.Outcome == forward.StreamBroken || res.Outcome == forward.DeadlinePassed && res.ReachedClient
	switch {
	case !broken:
	case v.Continuing:
		x.metrics.countResume(resumeFailed, resume.AlreadyResumed)
	case v.resume.splicer != nil:
		x.metrics.countResume(resumeNotResumable, v.resume.splicer.WhyNotResumable())
	default:
		x.metrics.countResume(resumeNotResumable, v.resume.notResumableReason)
	}
}

// countStreamUsage counts the tokens of a stream's whole answer, once.
func (x *attemptRunner) countStreamUsage(v *zoneRequest) {
	x.countUsage(v, v.resume.splicer.UsageOrEstimate(v.resume.promptTokens))
}

// countUsage counts the tokens of an answer. The prompt of a stream that began elsewhere was counted there.
func (x *attemptRunner) countUsage(v *zoneRequest, u openai.TokenUsage) {
	if v.hop.ContinuedTokens > 0 {
		u.Prompt, u.Cached = 0, 0
	}
	x.metrics.countTokens(v, u)
}

// setFingerprint computes a request's fingerprint for the memory of worker deaths, and records the deaths that the
// gateway reports for it.
func (x *attemptRunner) setFingerprint(v *zoneRequest) {
	v.fingerprintBuffer[0] = poison.ComputeFingerprint(x.fingerprintSeed, v.Tenant, v.Model, v.Body)
	v.Fingerprints = v.fingerprintBuffer[:]
	if v.hop.Deaths == 0 {
		return
	}
	x.scheduler.update(func(s *sched.Scheduler) { s.Deaths.RaiseVerdict(&v.Request, time.Now()) })
}

// endCondemned ends a request under which a second worker has died.
func (x *attemptRunner) endCondemned(w http.ResponseWriter, v *zoneRequest, res *forward.Result) {
	x.countLostStream(v, res)
	e := openai.RequestKillsWorkers(poison.DeathRetention)
	switch {
	case res.Outcome == forward.Interrupted || v.Continuing && !res.ReachedClient:
		x.metrics.countResume(resumeNotResumable, resume.WorkerDeaths)
		x.countStreamUsage(v)
		_ = x.forwarder.AppendEvents(w, forward.ErrorEventFor(w, e), false) // a client that has left needs no end
	case res.Outcome == forward.BrokenOff:
		forward.AbortHandler()
	case res.ReachedClient:
		x.writeDeathsHeader(w, v) // in the trailer
	default:
		x.writeDeathsHeader(w, v)
		x.refuseRequest(w, v, e, true)
	}
}

// writeDeathsHeader reports to the gateway how many workers have died under the request.
func (x *attemptRunner) writeDeathsHeader(w http.ResponseWriter, v *zoneRequest) {
	n := 0
	switch {
	case x.cfg.Plain:
	case v.DeathVerdict == poison.Condemned:
		n = 2
	case v.DeathVerdict == poison.Suspect:
		n = 1
	}
	if n > 0 {
		w.Header().Set(forward.HeaderDeaths, strconv.Itoa(n))
	}
}

// logWorkerDeath logs a request that has become suspect or condemned.
func (x *attemptRunner) logWorkerDeath(v *zoneRequest, at *sched.Attempt) {
	if v.DeathVerdict < poison.Suspect || len(v.Fingerprints) != 1 {
		return
	}
	x.log.Warn("a worker died under a request; after another death within ten minutes the request is refused",
		telemetry.KeyWorker, at.Worker.Spec.Name, telemetry.KeyRequest, v.hop.RequestID, telemetry.KeyTenant, v.Tenant, "verdict", v.DeathVerdict.String())
}
