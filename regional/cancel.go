package regional

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/regional/routing"
)

// errUnreachable is the cause of cancelled attempts at unreachable endpoints.
var errUnreachable = fmt.Errorf("%w: nothing is heard from it any more", forward.ErrGivenUp)

// cancelAttempts cancels attempts that the router has selected.
func cancelAttempts(list []*routing.Attempt, cause error) {
	for _, a := range list {
		if p, ok := a.Owner.(*gatewayAttempt); ok {
			p.cancelWith(cause)
		}
	}
}

// begin makes an attempt cancellable once its context has started. The router may have selected it for cancellation
// since it was dispatched.
func (p *gatewayAttempt) begin() {
	p.begun.Store(true)
	if cause := p.cancelCause.Load(); cause != nil {
		p.endContext(*cause)
	}
	if p.g.terminating.Load() {
		p.endContext(errStopping)
	}
}

// cancelWith cancels the attempt, at once or when it begins.
func (p *gatewayAttempt) cancelWith(cause error) {
	p.cancelCause.Store(&cause)
	if p.begun.Load() {
		p.endContext(cause)
	}
}

func (p *gatewayAttempt) endContext(cause error) {
	if p.cancel != nil {
		p.cancel(cause)
		return
	}
	p.ctx.EndWithCause(cause)
}

// LastByteAt implements routing.AttemptOwner.
func (p *gatewayAttempt) LastByteAt() time.Time {
	if at := p.lastByteAt.Load(); at != 0 {
		return p.g.started.Add(time.Duration(at))
	}
	return time.Time{}
}
