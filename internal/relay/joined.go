package relay

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
)

// errGaveUp means that the engine ended its answer with an error event.
var errGaveUp = errors.New("the engine gave its answer up")

// seam is the one that follows an answer: none that is an error, no stream of events, or packed.
func (o *Options) seam(resp *http.Response) *resume.Seam {
	if resp.StatusCode != http.StatusOK || First(resp.Header, "Content-Encoding") != "" || !strings.HasPrefix(First(resp.Header, "Content-Type"), "text/event-stream") {
		return nil
	}
	return o.Seam
}

// misfit records that a place would not go on with a stream. Another may.
func (r *Result) misfit(status int) {
	r.Err = fmt.Errorf("the place would not go on with the answer: status %d", status)
	r.Retryable, r.Answered = true, true
}

// join stands for the head of an answer that goes on with another.
func (s *stream) join() {
	if h, ok := s.obs.(HeadObserver); ok {
		h.Head(s.resp, http.Header{})
	}
	s.res.Started = true
}

// failed says that the engine has given up, in so many words.
func (s *stream) failed() bool { return s.seam != nil && s.seam.Failure() != nil }

// rest is what is held of a stream that has ended well.
func (s *stream) rest() []byte {
	if s.seam == nil {
		return s.unasked.Rest()
	}
	rest := s.seam.Rest()
	if s.hide {
		return append(s.unasked.Pass(rest), s.unasked.Rest()...)
	}
	return rest
}

// passOn passes the tier below's word that it resumed the stream on.
func (s *stream) passOn() {
	if by := s.resp.Trailer.Get(HeaderResumed); by != "" && s.seam != nil {
		MarkResumed(s.w, by)
	}
}

// MarkResumed says in the trailer that a stream was resumed by a tier.
func MarkResumed(w http.ResponseWriter, tier string) {
	h := w.Header()
	if had := h.Get(HeaderResumed); had != "" {
		tier = had + ", " + tier
	}
	h.Set(HeaderResumed, tier)
}

// lastWords is the event with which a stream breaks off.
func lastWords(w http.ResponseWriter, s *resume.Seam) []byte {
	if s != nil && s.Failure() != nil {
		return s.Failure()
	}
	return EventOf(w, openai.UpstreamLost())
}

// Break ends a stream that was cut and is not resumed, with an error event.
func (f *Forwarder) Break(w http.ResponseWriter, s *resume.Seam) {
	_ = f.Append(w, lastWords(w, s), false)
}

// Append writes the last events of a stream whose head was written before. hide takes usage out of them.
func (f *Forwarder) Append(w http.ResponseWriter, events []byte, hide bool) error {
	if hide {
		var u openai.Unasked
		events = u.Pass(events)
	}
	rc := http.NewResponseController(w)
	d := f.WriteTimeout
	if d <= 0 {
		d = defaultWriteTimeout
	}
	_ = rc.SetWriteDeadline(time.Now().Add(d)) // a writer without deadlines is a test's
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	if _, err := w.Write(events); err != nil {
		return fmt.Errorf("writing to the client: %w", err)
	}
	if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
