package local

import (
	"time"

	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/local/warm"
)

// stock is a model on workers that are in the same pools. What is loaded is decided for each stock by itself: a model that
// some workers have ready is cold all the same for a request that may not go to them.
type stock struct {
	model string
	pools uint64
}

// want notes that somebody waits for a stock that is cold. Without pools the queue itself says so.
func (f *floor) want(k stock, until time.Time) {
	if len(f.orders.spec.Pools) == 0 {
		return
	}
	if f.wants == nil {
		f.wants = map[stock]time.Time{}
	}
	f.wants[k] = until // bounded by the stocks that there are
	f.changed()
}

// parted shares out among a model's stocks what was counted of the model: those that are cold are waited for only where
// somebody wants them, and the floor of warm replicas is that of the workers of no pool, or of the first pool's.
func (f *floor) parted(c *census, now time.Time) {
	for k, until := range f.wants {
		if _, there := c.index[k]; !there || now.After(until) {
			delete(f.wants, k)
		}
	}
	if len(f.orders.spec.Pools) == 0 {
		return
	}
	warmed := make([]bool, len(c.zone.Models))
	for i := range c.zone.Workers {
		for _, p := range c.zone.Workers[i].Places {
			warmed[p.Model] = warmed[p.Model] || p.State != warm.Loadable
		}
	}
	keeper := map[string]uint64{}
	for k := range c.index {
		if pools, ok := keeper[k.model]; !ok || k.pools < pools {
			keeper[k.model] = k.pools
		}
	}
	for k, i := range c.index {
		m := &c.zone.Models[i]
		if keeper[k.model] != k.pools {
			m.Floor = 0
		}
		if _, wanted := f.wants[k]; wanted {
			m.Waiting = max(m.Waiting, 1)
		} else if !warmed[i] && m.Floor == 0 {
			m.Waiting = 0
		}
	}
}

// outlookFor says what may be expected of a model that nobody has ready whom a request may go to, and of which stock; nil
// stands for any request.
func (f *floor) outlookFor(model string, q *pick.Query, now time.Time) (best stock, o warm.Outlook) {
	c := f.count(now)
	for k, i := range c.index {
		if k.model != model || q != nil && !q.For(&pick.Worker{Pools: k.pools}) {
			continue
		}
		l := warm.Look(f.warming, &c.zone, i, now)
		if l.Hope > o.Hope || l.Hope == o.Hope && (l.Wait < o.Wait || l.Wait == o.Wait && k.pools < best.pools) {
			best, o = k, l
		}
	}
	return best, o
}
