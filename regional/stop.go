package regional

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
)

// terminateBefore is how long before the deadline of a stop the remaining requests are ended, so that clients
// receive an error and peers' gateways continue them elsewhere.
const terminateBefore = time.Second

// errStopping is the cause of attempts that are cancelled when this gateway stops.
var errStopping = fmt.Errorf("%w: the gateway is stopping", forward.ErrGivenUp)

// Stop reports to the global tier that this gateway drains, accepts nothing new, lets streams finish until shortly
// before ctx ends, and then ends them with an error event. It waits for everything that Start began.
func (g *Gateway) Stop(ctx context.Context) error {
	if !g.stopped.CompareAndSwap(false, true) {
		return nil
	}
	g.server.stopping.Store(true)
	if g.child != nil {
		g.child.SummarizeNow()
	}
	last := g.scheduleCancelAll(ctx)
	defer last()
	var frontErr, peerErr, tunnelErr error
	var both sync.WaitGroup
	both.Go(func() { frontErr = g.clientListener.shutDown(ctx) })
	if g.peerListener != nil {
		both.Go(func() { peerErr = g.peerListener.shutDown(ctx) })
	}
	both.Go(func() { tunnelErr = g.server.tunnels.Stop(ctx, errStopping) })
	both.Wait()
	if g.cancel != nil {
		g.cancel()
	}
	g.closeComponents()
	g.done.Wait()
	return errors.Join(frontErr, peerErr, tunnelErr)
}

// scheduleCancelAll ends the remaining attempts shortly before ctx ends. The returned function cancels that.
func (g *Gateway) scheduleCancelAll(ctx context.Context) (off func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return func() {}
	}
	left := time.Until(deadline)
	t := time.AfterFunc(left-min(terminateBefore, left/4), g.cancelAllAttempts)
	return func() { t.Stop() }
}

// cancelAllAttempts cancels all attempts in flight.
func (g *Gateway) cancelAllAttempts() {
	g.server.terminating.Store(true)
	g.router.cancelAll(errStopping)
}
