package regional

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/relay"
)

// goodbye is how long before the deadline of a stop what still runs is ended, so that clients are told, and peers'
// gateways go on with it elsewhere.
const goodbye = time.Second

// errEnding is why an attempt is given up when this gateway must end.
var errEnding = fmt.Errorf("%w: the gateway is stopping", relay.ErrGivenUp)

// Stop tells the global tier that this gateway drains, takes nothing new, lets streams finish until shortly before ctx
// ends, then ends them with an error event. It waits for everything that Start began.
func (g *Gateway) Stop(ctx context.Context) error {
	if !g.stopped.CompareAndSwap(false, true) {
		return nil
	}
	g.stopping.Store(true)
	if g.child != nil {
		g.child.Wake()
	}
	last := g.lastCall(ctx)
	defer last()
	var frontErr, peerErr, tunnelErr error
	var both sync.WaitGroup
	both.Go(func() { frontErr = g.front.stop(ctx) })
	if g.peer != nil {
		both.Go(func() { peerErr = g.peer.stop(ctx) })
	}
	both.Go(func() { tunnelErr = g.tunnels.Stop(ctx, errEnding) })
	both.Wait()
	if g.cancel != nil {
		g.cancel()
	}
	g.close()
	g.done.Wait()
	return errors.Join(frontErr, peerErr, tunnelErr)
}

// lastCall ends what still runs shortly before ctx does. The returned function calls that off.
func (g *Gateway) lastCall(ctx context.Context) (off func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return func() {}
	}
	left := time.Until(deadline)
	t := time.AfterFunc(left-min(goodbye, left/4), g.endAll)
	return func() { t.Stop() }
}

// endAll gives up what runs.
func (g *Gateway) endAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ending.Store(true)
	for _, at := range g.places {
		for p := range at.flights {
			p.doomed = true
			p.cancel(errEnding)
		}
	}
}
