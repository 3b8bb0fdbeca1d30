package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/lifetime"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
)

const (
	bufferBytes         = 32 << 10
	defaultWriteTimeout = 30 * time.Second
)

// ErrGivenUp is the cause, itself or wrapped, with which a caller cancels Forward's context when it has lost faith in the
// place and not in the client: without a first byte the request may be tried elsewhere, and a stream that has begun is
// ended with an error event.
var ErrGivenUp = errors.New("the place was given up")

// errIdle is the cause when a place stops sending in the middle of an answer.
var errIdle = fmt.Errorf("%w: the answer stood still for too long", ErrGivenUp)

// errNoAnswer means that a place sent what is HTTP and no answer to a request.
var errNoAnswer = errors.New("the answer is none")

// Forwarder forwards requests. It is safe for concurrent use and must not be copied.
type Forwarder struct {
	// Transport carries the requests. It must not be nil.
	Transport http.RoundTripper
	// WriteTimeout bounds how long one write to a client may take. Zero means 30 s.
	WriteTimeout time.Duration
	// IdleTimeout bounds the silence before the answer's head and between any two pieces of its body. Zero means no bound.
	IdleTimeout time.Duration
	// Overloads keeps an answer 429, 502 or 503 of a worker in Result.Refused instead of relaying it: no output was made, so
	// another worker may be tried.
	Overloads bool

	buffers  sync.Pool
	silences silences
}

// Forward sends req, whose context it replaces by one under ctx, and streams the answer to w. It never retries. When
// Result.Retryable is set nothing has been written to w and the caller may try another place; when Result.Err is set
// and Started is not, the caller owes the client an answer.
func (f *Forwarder) Forward(ctx context.Context, w http.ResponseWriter, req *http.Request, obs Observer) Result {
	return f.ForwardAs(ctx, w, req, obs, Options{})
}

// ForwardAs is Forward with options. A ctx of lifetime's own kind is taken to be this forward's alone: it is ended when the
// answer stands still, and not put under another.
func (f *Forwarder) ForwardAs(ctx context.Context, w http.ResponseWriter, req *http.Request, obs Observer, opts Options) Result {
	s := &stream{f: f, w: w, rc: *http.NewResponseController(w), obs: obs, res: &Result{}, claim: opts.Claim, joined: opts.Joined, later: opts.Later}
	s.holder, _ = obs.(HoldObserver)
	life, own := ctx.(*lifetime.Context)
	if !own {
		life = lifetime.Under(ctx)
		s.life = life
	}
	s.ctx = life
	defer func() {
		if !s.res.Followed {
			s.end()
		}
	}()
	f.watch(&s.idle, life)
	f.relay(s, req, &opts)
	s.res.Done = time.Now()
	return *s.res
}

// relay sends the request and passes the answer on.
func (f *Forwarder) relay(s *stream, req *http.Request, opts *Options) {
	ctx, res := s.ctx, s.res
	resp, err := f.send(ctx, req, opts)
	opts.Original = nil // it is another reference to the body
	if err != nil {
		res.unreached(ctx, err)
		return
	}
	s.resp = resp
	if resp.StatusCode < http.StatusOK { // 101 or a number that is none; nobody could be sent it
		res.unreached(ctx, fmt.Errorf("%w: status %d", errNoAnswer, resp.StatusCode))
		return
	}
	res.Status = resp.StatusCode
	if First(resp.Header, HeaderNotStarted) != "" {
		res.refuse(resp)
		return
	}
	if f.Overloads && Overloaded(resp.StatusCode) {
		res.refuseOverloaded(resp)
		return
	}
	if s.seam = opts.seam(resp); opts.Joined && s.seam == nil {
		res.misfit(resp.StatusCode)
		return
	}
	s.hide = opts.HideUsage && resp.StatusCode/100 == 2 && First(resp.Header, "Content-Encoding") == ""
	res.Followed = s.run()
}

// unreached records that no answer came: the place's fault, unless it was the client that left.
func (r *Result) unreached(ctx context.Context, err error) {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrOutrun):
		r.outrun()
		return
	case errors.Is(cause, ErrGivenUp):
		err = cause
	default:
		r.ClientGone = ctx.Err() != nil && !Late(ctx)
	}
	r.Err = fmt.Errorf("forwarding the request: %w", err)
	r.Retryable = !r.ClientGone
}

// refuse keeps an answer that says no work was begun.
func (r *Result) refuse(resp *http.Response) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		body = nil
	}
	r.NotStarted, r.Retryable, r.Answered = true, true, true
	r.Refused = &Refusal{Status: resp.StatusCode, Header: resp.Header, Body: body}
	r.Err = fmt.Errorf("refused with status %d before any work was begun", resp.StatusCode)
}

// Overloaded reports whether a status says that a worker, or what stands before it, has no room at present.
func Overloaded(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusBadGateway || status == http.StatusServiceUnavailable
}

// refuseOverloaded keeps an answer by which an overloaded worker refuses.
func (r *Result) refuseOverloaded(resp *http.Response) {
	r.refuse(resp)
	r.NotStarted = false
	r.Err = fmt.Errorf("the worker refused with status %d", resp.StatusCode)
}

// stream is one answer on its way.
type stream struct {
	f        *Forwarder
	w        http.ResponseWriter
	rc       http.ResponseController
	resp     *http.Response
	obs      Observer
	holder   HoldObserver // obs, if it wants to know; nil otherwise
	res      *Result
	ctx      context.Context   // of this forward
	life     *lifetime.Context // the same, where it ends with the forward; nil otherwise
	later    func(Result)      // nil when the caller waits for the end
	idle     silence
	deadline time.Time // the client's write deadline as it is set
	last     [2]byte   // the last bytes written, to end a broken event cleanly
	claim    func() bool
	hide     bool // take the usage out of an event stream
	unasked  openai.Unasked
	body     io.ReadCloser // of the request, where that streams
	seam     *resume.Seam  // nil when the answer will not be resumed
	joined   bool          // the answer has begun elsewhere
}

// run relays the body. The head of a success waits for the first byte of the body or its clean end. True when the rest of
// the body is followed.
func (s *stream) run() (followed bool) {
	next, done := s.f.pieces(s.resp.Body)
	defer done()
	s.res.Events = strings.HasPrefix(First(s.resp.Header, "Content-Type"), "text/event-stream")
	s.hide = s.hide && s.res.Events
	if s.resp.StatusCode/100 != 2 && !s.head() {
		return false
	}
	for {
		if !s.Piece(next()) {
			return false
		}
		if s.followed() {
			return true
		}
	}
}

// Piece takes what came of the body; false when nothing more is to come.
func (s *stream) Piece(p []byte, err error) bool {
	now := time.Now()
	s.idle.heard(now)
	if len(p) > 0 && !s.piece(p, now, err == nil) {
		return false
	}
	if s.failed() {
		s.broken(s.ctx, errGaveUp)
		return false
	}
	if err == io.EOF && !s.cut(s.ctx) && !s.seam.Short() {
		if rest := s.rest(); len(rest) > 0 && !s.write(rest, false) {
			return false
		}
		s.finish()
		return false
	}
	if err != nil {
		s.broken(s.ctx, err)
		return false
	}
	return true
}

// cut reports whether the end of a body without a length may be one that we have made: a place that sees us hang up can
// still end its answer properly, on a connection that is not quite closed.
func (s *stream) cut(ctx context.Context) bool {
	return s.resp.ContentLength < 0 && errors.Is(context.Cause(ctx), ErrGivenUp)
}

// piece passes one piece on; false when the client has stopped reading.
func (s *stream) piece(p []byte, now time.Time, more bool) bool {
	if !s.res.Started && !s.head() {
		return false
	}
	if s.res.FirstByte.IsZero() {
		s.res.FirstByte = now
		dropBody(s.resp.Request)
	}
	if s.obs != nil {
		s.obs.Chunk(p)
	}
	if s.seam != nil {
		p = s.seam.Pass(p)
	}
	if s.hide {
		p = s.unasked.Pass(p)
	}
	return len(p) == 0 || s.write(p, more)
}

// write sends a piece to the client; false when it has stopped reading.
func (s *stream) write(p []byte, more bool) bool {
	s.extend()
	s.Held(true)
	_, err := s.w.Write(p)
	if err == nil && (more || s.res.Events) {
		err = s.flush()
	}
	s.Held(false)
	if err != nil {
		s.gone(err)
		return false
	}
	s.res.Bytes += int64(len(p))
	s.remember(p)
	return true
}

// head writes the answer's head; false when another attempt has done so.
func (s *stream) head() bool {
	if s.claim != nil && !s.claim() {
		s.res.outrun()
		return false
	}
	if s.joined {
		s.join()
		return true
	}
	out := s.w.Header()
	pass(out, s.resp.Header, nil)
	if s.seam != nil {
		out.Set("Trailer", HeaderResumed)
	}
	if s.hide {
		out.Del("Content-Length")
	}
	if s.res.Events {
		out.Set("X-Accel-Buffering", "no")
		out.Set("Cache-Control", "no-cache")
	}
	if h, ok := s.obs.(HeadObserver); ok {
		h.Head(s.resp, out)
	}
	s.res.Started = true
	s.w.WriteHeader(s.resp.StatusCode)
	return true
}

func (s *stream) finish() {
	if !s.res.Started && !s.head() {
		return
	}
	s.passOn()
	s.clear()
}

// broken ends an answer whose sender died. Before the first byte that is no more than a failed attempt.
func (s *stream) broken(ctx context.Context, err error) {
	if cause := context.Cause(ctx); errors.Is(cause, ErrGivenUp) {
		err = cause
	} else if errors.Is(cause, ErrOutrun) {
		s.res.outrun()
		return
	} else if ctx.Err() != nil {
		s.res.ClientGone = true
		s.res.Err = fmt.Errorf("relaying the answer: %w", ctx.Err())
		return
	}
	s.res.Err = fmt.Errorf("relaying the answer: %w", err)
	if s.failed() {
		s.res.Answered, s.res.Failure = true, s.seam.Failure()
	}
	if !s.res.Started {
		s.res.Retryable = true
		return
	}
	s.res.Truncated = true
	if s.seam != nil && (s.seam.Why() == resume.None || s.seam.Why() == resume.Spent) {
		s.res.Cut = true // the caller resumes it, or breaks it off
		s.clear()
		return
	}
	if s.res.Events {
		s.fail()
	}
}

// fail tells the client of an event stream that it broke off.
func (s *stream) fail() {
	event := lastWords(s.w, s.seam)
	if s.res.Bytes > 0 && s.last != [2]byte{'\n', '\n'} {
		event = append([]byte("\n\n"), event...)
	}
	s.extend()
	if _, err := s.w.Write(event); err == nil {
		_ = s.flush() // nothing is left to be done for a client that has gone too
	}
	s.clear()
}

func (s *stream) flush() error {
	if err := s.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// extend moves the client's write deadline, at most twice in its length: each move costs a timer.
func (s *stream) extend() {
	d := s.f.WriteTimeout
	if d <= 0 {
		d = defaultWriteTimeout
	}
	now := time.Now()
	if s.deadline.Sub(now) > d/2 {
		return
	}
	s.deadline = now.Add(d)
	_ = s.rc.SetWriteDeadline(s.deadline) // a writer without deadlines is a test's
}

// clear lifts the write deadline, so that the next answer on a kept connection does not inherit it.
func (s *stream) clear() {
	if !s.deadline.IsZero() {
		_ = s.rc.SetWriteDeadline(time.Time{}) // as above
	}
}

func (s *stream) remember(p []byte) {
	if len(p) >= 2 {
		s.last = [2]byte{p[len(p)-2], p[len(p)-1]}
		return
	}
	s.last = [2]byte{s.last[1], p[0]}
}
