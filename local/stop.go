package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

const (
	// notice is how long gateways have to hear that this instance stops, before it takes no more connections.
	notice = 100 * time.Millisecond
	// goodbye is how long before the deadline of a stop what still runs is ended: its gateway goes on with it elsewhere.
	goodbye = time.Second
	// parting bounds the end of what is no answer.
	parting = 2 * time.Second
)

// Stop says that this instance drains, takes nothing new, and lets running answers finish until shortly before ctx ends.
// Then streams end so that a gateway goes on with them elsewhere, and what has no byte yet is handed back to it. It waits
// for every goroutine.
func (a *Agent) Stop(ctx context.Context) error {
	a.leaving.Store(true)
	if a.uplink != nil {
		a.uplink.Wake()
		select {
		case <-time.After(notice):
		case <-ctx.Done():
		}
	}
	last := a.lastCall(ctx)
	defer last()
	errs := []error{a.door.stop(ctx)}
	a.watch.Stop()
	tunnels := make(chan error, 1)
	go func() { tunnels <- a.tunnels.Stop(ctx, errStopping) }()
	if err := a.http.Shutdown(ctx); err != nil {
		errs = append(errs, fmt.Errorf("answers cut short: %w", errors.Join(err, a.http.Close())))
	}
	errs = append(errs, <-tunnels)
	a.batcher.close()
	a.cancel()
	a.wg.Wait()
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), parting)
	defer cancel()
	if a.uplink != nil {
		errs = append(errs, a.uplink.Stop(rest))
	}
	if a.admin != nil {
		errs = append(errs, a.admin.Stop(rest))
	}
	a.close()
	return errors.Join(errs...)
}

// lastCall ends what still runs shortly before ctx does. The returned function calls that off.
func (a *Agent) lastCall(ctx context.Context) (off func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return func() {}
	}
	left := time.Until(deadline)
	t := time.AfterFunc(left-min(goodbye, left/4), a.floor.shut)
	return func() { t.Stop() }
}

// shut gives up what runs and refuses what waits.
func (f *floor) shut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ending = true
	now := time.Now()
	for _, p := range f.pools {
		f.refuseAll(p, openai.NoCapacity(p.model, openai.MinRetryAfter), now)
	}
	for _, w := range f.workers {
		w.giveUp(errStopping)
	}
	for w := range f.leaving {
		w.giveUp(errStopping)
	}
}
