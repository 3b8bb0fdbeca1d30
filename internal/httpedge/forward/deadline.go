package forward

import (
	"context"
	"errors"
	"io"
	"time"
)

// ErrClientDeadline is the cause with which a context ends at the client's own deadline
// (context.WithDeadlineCause).
var ErrClientDeadline = errors.New("the deadline is over")

// deadlineSlack is how long before this tier's deadline a tier below may end a call for the same deadline: the
// time left is sent in whole milliseconds, and each tier rounds.
const deadlineSlack = 5 * time.Millisecond

// IsPastDeadline reports whether a call under ctx that failed now has reached its client's deadline. The
// failure is then attributed to the deadline: a tier below counts to the same end and may reach it before the
// timer of this tier fires.
func IsPastDeadline(ctx context.Context) bool {
	if ctx.Err() != nil {
		return errors.Is(context.Cause(ctx), ErrClientDeadline)
	}
	end, ok := ctx.Deadline()
	return ok && time.Until(end) <= deadlineSlack
}

// attributeToClient determines whether the client caused a failure: its deadline has passed, or its streamed
// body broke off. The server may detect the latter before the context of the request ends.
func (r *Result) attributeToClient(ctx context.Context, body io.ReadCloser) {
	b, _ := body.(*replayReader)
	switch {
	case r.Err == nil || r.Outcome.IsClientGone() || r.IsGivenUp():
	case IsPastDeadline(ctx):
		r.recordDeadline()
	case b != nil && b.body.isBroken():
		r.blameClient()
	}
}

// isBroken reports whether the body broke off.
func (b *ReplayBody) isBroken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err != nil && b.err != io.EOF
}
