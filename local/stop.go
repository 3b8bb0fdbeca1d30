package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/local/sched"
)

const (
	// stopNotice is how long gateways have to receive the draining summary before the instance stops accepting connections.
	stopNotice = 100 * time.Millisecond
	// terminateBefore is how long before the deadline of a stop the running answers are ended: the gateway continues them elsewhere.
	terminateBefore = time.Second
	// finalStopTimeout bounds the shutdown of the uplink and the admin API.
	finalStopTimeout = 2 * time.Second
)

// Stop announces that this instance drains, accepts nothing new, and lets running answers finish until shortly before ctx
// ends. Then streams are ended so that a gateway continues them elsewhere, and requests without a first byte are returned to
// it. Stop waits for every goroutine.
func (a *Agent) Stop(ctx context.Context) error {
	a.stopping.Store(true)
	if a.uplink != nil {
		a.uplink.SummarizeNow()
		select {
		case <-time.After(stopNotice):
		case <-ctx.Done():
		}
	}
	last := a.scheduleTermination(ctx)
	defer last()
	errs := []error{a.registration.stop(ctx)}
	a.discovery.Stop()
	tunnels := make(chan error, 1)
	go func() { tunnels <- a.handler.tunnels.Stop(ctx, errStopping) }()
	if err := a.httpServer.Shutdown(ctx); err != nil {
		errs = append(errs, fmt.Errorf("answers cut short: %w", errors.Join(err, a.httpServer.Close())))
	}
	errs = append(errs, <-tunnels)
	a.handler.dispatchers.close()
	a.cancel()
	a.wg.Wait()
	rest, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalStopTimeout)
	defer cancel()
	if a.uplink != nil {
		errs = append(errs, a.uplink.Stop(rest))
	}
	if a.admin != nil {
		errs = append(errs, a.admin.Stop(rest))
	}
	a.closeComponents()
	return errors.Join(errs...)
}

// scheduleTermination calls terminateAll shortly before ctx ends. The returned function cancels that.
func (a *Agent) scheduleTermination(ctx context.Context) (off func()) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return func() {}
	}
	left := time.Until(deadline)
	t := time.AfterFunc(left-min(terminateBefore, left/4), func() {
		a.scheduler.update(func(s *sched.Scheduler) { s.Admission.TerminateAll(time.Now()) })
	})
	return func() { t.Stop() }
}
