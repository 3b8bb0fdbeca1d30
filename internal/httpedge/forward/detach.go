package forward

import (
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
)

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
	return s.onDetachedEnd != nil && s.result.Started && s.result.IsEventStream
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
	s.result.DoneAt, s.result.Detached = time.Now(), false
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
