package local

import (
	"fmt"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/queue"
)

// queueNote says in words what a request would meet at the door of a model's queue now. room and reason are what the choice
// of a worker has come to.
func (f *floor) queueNote(v *visit, p *pool, reason string, room bool, now time.Time) string {
	switch {
	case f.closed(now):
		return "refused: the drain of the zone has reached its deadline"
	case room && p.queue.Len() == 0:
		return "sent at once: nobody waits and a worker has room"
	case !room && reason == pick.ReasonTooLong:
		return fmt.Sprintf("refused: longer than the %d tokens that any worker takes", f.longest(v, p))
	case !room && reason == pick.ReasonNoWorker:
		return "refused: no worker takes requests, unless one is woken or loads the model"
	}
	f.line(v, p, now)
	v.item.Bytes = int64(float64(v.query.PromptTokens) * f.orders.bytesPerToken(v.model)) // it has no body
	c := p.queue.Foresee(&v.item, now)
	if c.Refusal != queue.Accepted {
		again := p.queue.RetryAfter(v.flow(), v.class, now)
		return fmt.Sprintf("refused: %s: try again in %s", c.Refusal, spec.Duration(again))
	}
	waits := "waits; for how long is not known before something has left the queue"
	if c.Known {
		waits = fmt.Sprintf("waits about %.1f s", c.Wait.Seconds())
	}
	if c.Shed > 0 {
		return fmt.Sprintf("shed with probability %.2f, otherwise %s", c.Shed, waits)
	}
	return waits
}
