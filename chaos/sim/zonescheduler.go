package sim

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/engine/report"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/sched"
)

// zoneScheduler is the scheduler of one instance with what an Agent adds to it: the translation of requests, outcomes and
// directives.
type zoneScheduler struct {
	*sched.Scheduler
	path       capacity.Path
	policyName string // of the configuration; empty follows the spec
	policy     *sched.SchedulingPolicy
	blankText  []byte // stands for every text, of which only the length matters
	free       []*zoneRequest
}

func newZoneScheduler(path capacity.Path, policyName string, s *spec.Spec, seed uint64, prefixIndex int, blankText []byte) (*zoneScheduler, error) {
	if _, err := pick.ParsePolicy(policyName); err != nil {
		return nil, err
	}
	z := &zoneScheduler{path: path, policyName: policyName, policy: sched.NewSchedulingPolicy(s, policyName, nil, 0), blankText: blankText}
	cfg := sched.Config{Region: path.Region, Zone: path.Zone, Name: path.Instance, Policy: z.policy, PrefixIndex: prefixIndex}
	if cfg.PrefixIndex <= 0 {
		cfg.PrefixIndex = sched.DefaultPrefixIndexBytes
	}
	cfg.Rand, cfg.PrefixSecret = sched.SeedRandom(max(seed, 1))
	z.Scheduler = sched.New(cfg)
	return z, nil
}

// simulatedBackend is a worker whose engine is never called: the simulator provides its readings.
type simulatedBackend struct{}

func (simulatedBackend) EngineName() string { return "vllm" }

func (simulatedBackend) LoadsModels() bool { return false }

func (simulatedBackend) Sleeps() bool { return false }

func (simulatedBackend) RequestScrape() {}

// addWorker adds a worker that serves one model, with prompts and answers up to maxContext tokens.
func (z *zoneScheduler) addWorker(w *simulatedWorker, now time.Time) (*sched.Worker, error) {
	d := sched.WorkerSpec{
		Name: w.name, URL: "http://" + w.name + ":8000", GPU: w.gpu, Weight: 1,
		Models: []report.WorkerModel{{ID: w.model, MaxContext: int64(w.engine.Limits().MaxModelLen)}},
	}
	added, ok := z.Registry.AddWorker(d, simulatedBackend{}, now)
	if !ok {
		return nil, fmt.Errorf("the zone has too many workers for one instance: split it into zones before adding %s", w.name)
	}
	return added, nil
}

// recordScrape records the result of scraping a worker: its reading, or the cause of the failure. A worker that was
// ejected is warmed up at once.
func (z *zoneScheduler) recordScrape(w *sched.Worker, r *report.Reading, cause string, now time.Time) {
	_, version := w.ScrapeState()
	z.RecordScrape(w, *r, version, cause, now)
	if _, waits := z.Health.NeedsWarmUp(w); waits {
		z.RecordWarmUp(w, "", now)
	}
}

// applyDirective puts a directive in force.
func (z *zoneScheduler) applyDirective(d *uplink.Directive, s *spec.Spec, now time.Time) {
	drains := make([]sched.ActiveDrain, len(d.Drains))
	for i := range d.Drains {
		x := &d.Drains[i]
		drains[i] = sched.ActiveDrain{Path: x.Path, Until: x.Until, Start: x.Start, Over: x.Over}
	}
	z.policy = sched.NewSchedulingPolicy(s, z.policyName, drains, d.PrefixSeed)
	z.ApplyPolicy(z.policy, now)
}

// countWaiting returns the number of waiting requests.
func (z *zoneScheduler) countWaiting() (n int) {
	for _, queued := range z.Reports.QueueLengths() {
		n += queued
	}
	return n
}

// zoneRequest is a request in a zone with the memory that it refers to.
type zoneRequest struct {
	sched.Request
	owner          *simulatedRequest
	blockBuffer    [16]uint64
	landmarkBuffer [capacity.MaxLandmarks]uint64
}

// newRequest returns a request of x that arrives now, and adds its share of a retry to the budget. The caller sets what the
// request asks for. promptBytes is the length of its text; blocks and landmarks are copied.
func (z *zoneScheduler) newRequest(x *simulatedRequest, promptBytes int64, blocks, landmarks []uint64, now time.Time) *zoneRequest {
	v := &zoneRequest{}
	if n := len(z.free); n > 0 {
		v, z.free = z.free[n-1], z.free[:n-1]
		*v = zoneRequest{}
	}
	v.owner, v.Owner = x, v
	v.ArrivedAt, v.ExcludedWorkers = now, [2]int32{-1, -1}
	v.Envelope.Stream, v.Envelope.N = true, 1
	z.setText(v, promptBytes)
	z.setBlocks(v, blocks)
	v.Landmarks = append(v.landmarkBuffer[:0], landmarks[:min(len(landmarks), len(v.landmarkBuffer))]...)
	z.Retries.AddRetryCredit()
	return v
}

func (z *zoneScheduler) setText(v *zoneRequest, bytes int64) {
	text := z.blankText[:min(int64(len(z.blankText)), max(bytes, 1))]
	v.Body, v.Envelope.Prompt = text, text
}

func (z *zoneScheduler) setBlocks(v *zoneRequest, blocks []uint64) {
	v.Query.Blocks = append(v.blockBuffer[:0], blocks[:min(len(blocks), blockhash.MaxBlocks)]...)
}

// recycleRequest reuses the memory of a finished request.
func (z *zoneScheduler) recycleRequest(v *zoneRequest) {
	if !v.QueueItem.IsWaiting() {
		z.free = append(z.free, v)
	}
}

// expireRequest removes a request that has reached its deadline from the queue. It returns nil when the wait had just ended
// otherwise.
func (z *zoneScheduler) expireRequest(v *zoneRequest, now time.Time) *openai.Error {
	if !v.QueueItem.IsWaiting() {
		return nil
	}
	refusal := z.Admission.RefuseTooLate(&v.Request, now)
	z.Admission.LeaveQueue(&v.Request, now)
	return refusal
}

// finishAttempt ends an attempt, with the usage that the engine reported and the time of its last byte.
func (z *zoneScheduler) finishAttempt(at *sched.Attempt, u openai.TokenUsage, end attemptEnd, last, now time.Time) {
	o := sched.AttemptOutcome{Status: 200, IsEventStream: true, Events: int64(u.Completion)}
	switch end {
	case endComplete:
		o.Usage, o.LastByteAt, o.Evidence = u, last, sched.EvidenceSuccess
	case endClientGone:
		o.ClientGone, o.Failed = true, true
	case endOverloaded:
		o.Status, o.IsEventStream, o.Events = 503, false, 0
		o.Evidence, o.ErrorStatus = sched.EvidenceErrorAnswer, o.Status
	case endTooLong:
		o.Status, o.IsEventStream, o.Events, o.Evidence = 400, false, 0, sched.EvidenceSuccess
	case endGivenUp:
		o.Failed, o.Evidence, o.Cause = true, sched.EvidenceUnreachable, "the worker emits nothing"
	default:
		o.Failed, o.Evidence, o.Cause, o.KilledWorker = true, sched.EvidenceUnreachable, "the connection was reset", true
	}
	z.FinishAttempt(at, &o, now)
}

// takeRetry reports whether a request may be retried on another worker after a failed attempt, and takes the retry from the
// budget.
func (z *zoneScheduler) takeRetry(v *zoneRequest, at *sched.Attempt, now time.Time) bool {
	v.ExcludeWorker(at.Choice.ID)
	if v.RetriesLeft < 1 || !z.Retries.TakeRetry(&v.Request, now) {
		return false
	}
	v.RetriesLeft--
	return true
}

// resumeRequest turns a request whose stream broke off after made tokens into one for the rest of its answer. It returns
// false when the scheduler does not allow it. blocks are those of the prompt with the partial answer.
func (z *zoneScheduler) resumeRequest(v *zoneRequest, at *sched.Attempt, made int, blocks []uint64, now time.Time) bool {
	if _, allowed := z.policy.Spec.ResumeLimit(v.Tenant); !allowed {
		return false
	}
	v.ExcludeWorker(at.Choice.ID)
	if z.Retries.TakeResume(&v.Request, false, now) != resume.Resumable {
		return false
	}
	v.Continuing, v.RetriesLeft = true, 1
	v.EstimatedTokens += int64(made)
	z.setText(v, int64(len(v.Envelope.Prompt))+int64(float64(made)*z.policy.BytesPerToken(v.Model)))
	if v.Envelope.MaxTokens > 0 {
		v.Envelope.MaxTokens = max(v.Envelope.MaxTokens-made, 1)
	}
	z.setBlocks(v, blocks)
	return true
}

// takeSettled returns a copy of the requests whose wait has ended since the last call.
func (z *zoneScheduler) takeSettled(buffer []*sched.Request) []*sched.Request {
	return append(buffer[:0], z.Admission.TakeSettled()...)
}
