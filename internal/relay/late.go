package relay

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrLate is the cause with which a context ends when the client's own deadline is over (context.WithDeadlineCause).
var ErrLate = errors.New("the deadline is over")

// early is how long before our own deadline a tier below may end a call by the same one: it is told what is left in whole
// milliseconds, and each tier rounds.
const early = 5 * time.Millisecond

// Late reports whether a call under ctx that has failed now has come to the end of its client's deadline. What fails then
// fails of that: a tier below counts to the same end, and may be there before our own timer has fired.
func Late(ctx context.Context) bool {
	if ctx.Err() != nil {
		return errors.Is(context.Cause(ctx), ErrLate)
	}
	end, ok := ctx.Deadline()
	return ok && time.Until(end) <= early
}

// expire says that a failure is the end of the client's own deadline: nobody's fault, and of no use to try again.
func (r *Result) expire() {
	r.Late, r.Retryable, r.ClientGone, r.Err = true, false, false, ErrLate
}

// excuse finds out whether a failure is the client's own doing: its deadline is over, or the body that it streams broke
// off, which its server may know of before the request's context does.
func (r *Result) excuse(ctx context.Context, body io.ReadCloser) {
	b, _ := body.(*replayed)
	switch {
	case r.Err == nil || r.ClientGone || r.GivenUp():
	case Late(ctx):
		r.expire()
	case b != nil && b.b.broken():
		r.ClientGone, r.Retryable = true, false
	}
}

// broken reports whether the body ended before its end.
func (b *Replay) broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil && b.err != io.EOF
}
