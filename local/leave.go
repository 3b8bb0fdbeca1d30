package local

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/spec"
)

// errZoneDrained is why an attempt in a zone whose drain has lasted too long is given up.
var errZoneDrained = fmt.Errorf("%w: the zone's drain has reached its deadline", relay.ErrGivenUp)

// errStopping is why what still runs is given up when this instance must end.
var errStopping = fmt.Errorf("%w: the instance is stopping", relay.ErrGivenUp)

// leaveTaking ends what still runs and waits in a zone that should have been empty by now. What has no byte yet is handed
// back to the gateway as not started, and a stream that has begun ends with an error event. Until then a drained zone
// serves what is sent to it: its gateways send only what would find no place elsewhere.
func (f *floor) leaveTaking(now time.Time) {
	f.drain.Set(f.orders.zoneDrained(f.cfg.Region, f.cfg.Zone, now), now)
	if !f.closed(now) {
		return
	}
	for _, p := range f.models() {
		f.refuseAll(p, openai.NoCapacity(p.model, openai.MinRetryAfter), now)
	}
	for _, w := range f.inOrder() {
		w.giveUp(errZoneDrained)
	}
	for w := range f.leaving {
		w.giveUp(errZoneDrained)
	}
}

// closed says that the zone's drain has reached its deadline: nothing is taken any more.
func (f *floor) closed(now time.Time) bool {
	return f.ending || f.drain.Overdue(f.orders.drainDeadline(), now)
}

// giveUp ends every attempt on a worker.
func (w *worker) giveUp(cause error) {
	for at := range w.attempts {
		if at.cancel != nil {
			at.cancel(cause)
		}
	}
}

// zoneDrained says whether a drain names this zone itself. The drain of a whole region is its gateways' affair: clients
// whose resolvers still hold their addresses must be served somewhere.
func (o *orders) zoneDrained(region, zone string, now time.Time) bool {
	for i := range o.drains {
		d := &o.drains[i]
		r, z, w, err := spec.ParseDrain(d.Path)
		if err == nil && r == region && z == zone && w == "" && (d.Until.IsZero() || now.Before(d.Until)) {
			return true
		}
	}
	return false
}
