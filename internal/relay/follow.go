package relay

import (
	"time"

	"github.com/spillway-lb/spillway/internal/wire"
)

// followed has the rest of a stream left to whoever follows it, where that may be. What was said in the heads is not needed
// any more, and would be held for as long as the stream lives.
func (s *stream) followed() bool {
	if !s.mayFollow() || !wire.Follow(s.w, s.resp.Body, s) {
		return false
	}
	s.resp.Header, s.resp.Request = nil, nil
	return true
}

// mayFollow says that the rest of a stream can be left to whoever follows it: all that could send the request elsewhere is
// past.
func (s *stream) mayFollow() bool { return s.later != nil && s.res.Started && s.res.Events }

// Held tells whoever watches the answer that it waits for its client, or does not any more.
func (s *stream) Held(on bool) {
	if s.holder != nil {
		s.holder.Held(on)
	}
}

// Unsent records that the client could not be written to.
func (s *stream) Unsent(err error) { s.gone(err) }

// Over tells the caller how a stream went that was followed.
func (s *stream) Over() {
	s.end()
	s.res.Done, s.res.Followed = time.Now(), false
	s.later(*s.res)
}

// end gives back what a forward holds.
func (s *stream) end() {
	if s.resp != nil {
		_ = s.resp.Body.Close() // it was read, or nobody wants the rest
	}
	s.idle.stop()
	if s.life != nil {
		s.life.End(nil)
	}
}
