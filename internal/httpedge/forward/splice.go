package forward

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/resume"
)

// errEngineFailed means that the engine ended its response with an error event.
var errEngineFailed = errors.New("the engine ended its response with an error event")

// splicerFor returns the splicer for a response, or nil if the response is an error, not an event stream, or
// compressed.
func (o *Options) splicerFor(resp *http.Response) *resume.Splicer {
	if resp.StatusCode != http.StatusOK || FirstValue(resp.Header, "Content-Encoding") != "" || !strings.HasPrefix(FirstValue(resp.Header, "Content-Type"), "text/event-stream") {
		return nil
	}
	return o.Splicer
}

// beginContinuation replaces writeHead for a response that continues another.
func (s *answerStream) beginContinuation() {
	if h, ok := s.observer.(HeadObserver); ok {
		h.EditHead(s.resp, http.Header{})
	}
	s.result.ReachedClient = true
}

// engineFailed reports whether the engine ended the stream with an error event.
func (s *answerStream) engineFailed() bool { return s.splicer != nil && s.splicer.ErrorEvent() != nil }

// remainingBytes returns the held-back bytes of a stream that ended successfully.
func (s *answerStream) remainingBytes() []byte {
	if s.splicer == nil {
		return s.usageFilter.HeldBytes()
	}
	rest := s.splicer.PartialEvent()
	if s.hideUsage {
		return append(s.usageFilter.FilterChunk(rest), s.usageFilter.HeldBytes()...)
	}
	return rest
}

// passResumedMark forwards the resumed mark of the tier below.
func (s *answerStream) passResumedMark() {
	if by := s.resp.Trailer.Get(HeaderResumed); by != "" && s.splicer != nil {
		MarkResumed(s.writer, by)
	}
}

// MarkResumed records in the trailer that a tier resumed the stream.
func MarkResumed(w http.ResponseWriter, tier string) {
	h := w.Header()
	if had := h.Get(HeaderResumed); had != "" {
		tier = had + ", " + tier
	}
	h.Set(HeaderResumed, tier)
}

// breakEvent returns the error event that ends a broken stream.
func breakEvent(w http.ResponseWriter, s *resume.Splicer) []byte {
	if s != nil && s.ErrorEvent() != nil {
		return s.ErrorEvent()
	}
	return ErrorEventFor(w, openai.UpstreamLost())
}

// tryDetach detaches the rest of a stream, if allowed. It also releases the heads, which would otherwise be
// held for the life of the stream.
func (s *answerStream) tryDetach() bool {
	if !s.mayDetach() || !http1.DetachStream(s.writer, s.resp.Body, s) {
		return false
	}
	s.resp.Header, s.resp.Request = nil, nil
	return true
}

// mayDetach reports whether the rest of a stream can be detached: the request can no longer be sent elsewhere.
func (s *answerStream) mayDetach() bool {
	return s.onDetachedEnd != nil && s.result.ReachedClient && s.isEventStream
}

// SetClientBlocked reports to the observer whether the response waits for its client.
func (s *answerStream) SetClientBlocked(on bool) {
	if s.backpressure != nil {
		s.backpressure.SetClientBlocked(on)
	}
}

// HandleWriteError records that writing to the client failed.
func (s *answerStream) HandleWriteError(err error) { s.recordClientGone(err) }

// FinishDetached reports the result of a detached stream to the caller.
func (s *answerStream) FinishDetached() {
	s.releaseAll()
	s.result.DoneAt = time.Now()
	s.onDetachedEnd(*s.result)
}

// releaseAll releases the resources of a forward.
func (s *answerStream) releaseAll() {
	if s.resp != nil {
		_ = s.resp.Body.Close() // it was read, or the rest is not needed
	}
	s.idleWatch.stopWatch()
	if s.ownCtx != nil {
		s.ownCtx.EndWithCause(nil)
	}
}
