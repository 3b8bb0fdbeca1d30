package local

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/resume"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
)

// LabVisit is one request in a Lab, from its arrival to the last byte of its answer.
type LabVisit struct {
	// Owner is its caller's own.
	Owner   any
	visit   visit
	verdict verdict
}

// LabAsk is what the floor learns of a request by its head and its body.
type LabAsk struct {
	Model, Tenant string
	Class         spec.Class
	// Ticket is the gateway's ledger entry; zero behind a plain door.
	Ticket relay.Ticket
	// Prompt is its length as it is estimated before any engine has counted it, in tokens; Bytes that of its text.
	Prompt, Bytes int64
	// MaxTokens is the output limit that it names; 0 when it names none.
	MaxTokens int
	// Blocks are what pick.Blocks would make of its text, and Key what consistent_hash goes by. Neither is kept.
	Blocks []uint64
	Key    uint64
	// Marks are the names of its beginnings in sketches, as capacity.Landmarks would make them.
	Marks []uint64
	// Deadline is when the caller gives up; zero for none.
	Deadline time.Time
	// FirstToken is when its answer should begin, from its arrival, and Step how far apart the tokens after it may come; 0 says
	// nothing.
	FirstToken, Step time.Duration
	// Retries that are left to it, 0 or 1.
	Retries int
	// Continues is how many tokens at the end of the prompt are of an answer that the client has the beginning of.
	Continues int
}

// Visit makes a visit of a request that arrives now, and saves up its share of a retry.
func (l *Lab) Visit(q *LabAsk, now time.Time) *LabVisit {
	v := l.fresh()
	x := &v.visit
	x.r, x.model, x.class, x.estimate, x.arrived, x.deadline, x.retries = l.request, q.Model, q.Class, max(q.Prompt, 1), now, q.Deadline, q.Retries
	x.excluded = [2]int32{-1, -1}
	x.wants(relay.Times{FirstToken: q.FirstToken, Step: q.Step})
	x.hop.Tenant, x.hop.Ticket, x.hop.Continues = q.Tenant, q.Ticket, q.Continues
	text := l.blank[:min(int64(len(l.blank)), max(q.Bytes, 1))]
	x.body, x.env.Prompt = text, text
	x.env.Stream, x.env.MaxTokens, x.env.N, x.named = true, q.MaxTokens, 1, q.MaxTokens
	x.query.Blocks, x.query.Key = append(x.blocks[:0], q.Blocks[:min(len(q.Blocks), pick.MaxBlocks)]...), q.Key
	x.marks = append(x.markRoom[:0], q.Marks[:min(len(q.Marks), len(x.markRoom))]...)
	x.told = func(d verdict) {
		v.verdict = d
		l.settled = append(l.settled, v)
	}
	l.floor.earn()
	return v
}

func (l *Lab) fresh() *LabVisit {
	n := len(l.spare)
	if n == 0 {
		return &LabVisit{}
	}
	v := l.spare[n-1]
	l.spare = l.spare[:n-1]
	*v = LabVisit{}
	return v
}

// Forget takes a visit back that is over.
func (l *Lab) Forget(v *LabVisit) {
	if !v.visit.item.Waiting() {
		l.spare = append(l.spare, v)
	}
}

// LabAttempt is one visit's stay at one worker. The zero one is none.
type LabAttempt struct{ at *attempt }

// Is says whether there is one.
func (a LabAttempt) Is() bool { return a.at != nil }

// Choice is what was decided.
func (a LabAttempt) Choice() pick.Verdict { return a.at.choice }

// Enter binds a visit to a worker now, lets it wait, or refuses it.
func (l *Lab) Enter(v *LabVisit, now time.Time) (at LabAttempt, refusal *openai.Error, waits bool) {
	at.at, refusal, waits = l.floor.arrive(&v.visit, now)
	return at, refusal, waits
}

// Until is how long a visit that waits may do so.
func (v *LabVisit) Until() time.Time { return v.visit.item.Deadline }

// Settled hands over the visits whose wait has ended since the last call, with what it came to. The slice is good until
// anything else is called.
func (l *Lab) Settled() []*LabVisit {
	out := l.settled
	l.settled = l.settled[:0]
	return out
}

// Verdict is what the wait came to: an attempt, or a refusal.
func (v *LabVisit) Verdict() (LabAttempt, *openai.Error) {
	return LabAttempt{v.verdict.attempt}, v.verdict.refusal
}

// TooLate takes a visit out of the queue that has waited until its deadline. Nil when its wait had just ended otherwise.
func (l *Lab) TooLate(v *LabVisit, now time.Time) *openai.Error {
	if !v.visit.item.Waiting() {
		return nil
	}
	_, refusal := l.floor.leave(&v.visit, l.floor.tooLate(&v.visit, now), now)
	return refusal
}

// Begin says that an attempt has left for its worker. give is called when the floor gives it up.
func (l *Lab) Begin(a LabAttempt, give func()) { l.floor.begin(a.at, func(error) { give() }) }

// FirstByte books the first byte of an answer.
func (l *Lab) FirstByte(a LabAttempt, now time.Time) {
	a.at.last = now
	l.floor.firstByte(a.at, true, now)
}

// LabEnd is how an attempt ended.
type LabEnd uint8

// The ends of attempts.
const (
	// EndWhole: the answer passed whole.
	EndWhole LabEnd = iota
	// EndLost: the connection broke, or could not be made.
	EndLost
	// EndGivenUp: the floor gave it up.
	EndGivenUp
	// EndClientGone: the client left.
	EndClientGone
	// EndFull: the worker refused it because its own queue is full.
	EndFull
	// EndTooLong: the worker refused it as longer than its context.
	EndTooLong
)

var errLabLost = errors.New("the connection was reset")

// End books an attempt out, with what the engine said that it used and when its last byte came.
func (l *Lab) End(a LabAttempt, u openai.Usage, end LabEnd, last, now time.Time) {
	at := a.at
	m := meter{at: at, events: true, status: http.StatusOK}
	started := !at.first.IsZero()
	res := relay.Result{Status: http.StatusOK, Started: started, Events: started}
	switch end {
	case EndWhole:
		m.stream.Usage, m.stream.Events = u, int64(u.Completion)
		at.last = last
	case EndClientGone:
		res.ClientGone, res.Err, m.stream.Events = true, errLabLost, int64(u.Completion)
	case EndFull:
		m.status, m.events, res.Status = http.StatusServiceUnavailable, false, http.StatusServiceUnavailable
	case EndTooLong:
		m.status, m.events, res.Status = http.StatusBadRequest, false, http.StatusBadRequest
	case EndGivenUp:
		res.Err, m.stream.Events = fmt.Errorf("%w: %w", errStalled, errLabLost), int64(u.Completion)
	default:
		res.Err, m.stream.Events = errLabLost, int64(u.Completion)
		if !started {
			res.Status = 0
		}
	}
	l.floor.end(at, &m, &res, now)
}

// Again says whether a visit may be tried once more elsewhere after an attempt that came to nothing, and takes that out of
// the budget. Enter it then.
func (l *Lab) Again(v *LabVisit, a LabAttempt, now time.Time) bool {
	v.visit.exclude(a.at.choice.ID)
	if v.visit.retries < 1 || !l.floor.spend(&v.visit, now) {
		return false
	}
	v.visit.retries--
	return true
}

// Resume makes a visit whose stream broke off one for the rest of its answer, after so many tokens of it; false when the
// floor does not let it go on. blocks are those of the prompt and what there is of the answer. Enter it then.
func (l *Lab) Resume(v *LabVisit, a LabAttempt, made int, blocks []uint64, now time.Time) bool {
	f, x := l.floor, &v.visit
	if _, allowed := f.orders.spec.Resumes(x.hop.Tenant); !allowed {
		return false
	}
	x.exclude(a.at.choice.ID)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mayResume(x, now) != resume.None {
		return false
	}
	x.stream.joined, x.retries = true, 1
	x.estimate += int64(made)
	bytes := int64(len(x.env.Prompt)) + int64(float64(made)*f.orders.bytesPerToken(x.model))
	text := l.blank[:min(int64(len(l.blank)), bytes)]
	x.body, x.env.Prompt = text, text
	if x.named > 0 {
		x.env.MaxTokens = max(x.env.MaxTokens-made, 1)
		x.named = x.env.MaxTokens
	}
	x.query.Blocks = append(x.blocks[:0], blocks[:min(len(blocks), pick.MaxBlocks)]...)
	return true
}
