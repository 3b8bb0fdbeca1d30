package local

import (
	"fmt"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/route"
)

// assign finds the workers that are set apart for a visit, by the spec in force now.
func (f *floor) assign(v *visit) {
	p, bit := route.PoolOf(f.orders.spec, v.hop.Tenant, v.model, v.class)
	v.query.Pools, v.query.Overflow = bit, p != nil && p.Overflow
}

// noPool refuses a visit for which no worker is declared: another place may have one.
func (f *floor) noPool(v *visit) *openai.Error {
	e := openai.NoCapacity(v.model, openai.MinRetryAfter)
	if p, _ := route.PoolOf(f.orders.spec, v.hop.Tenant, v.model, v.class); p != nil {
		e.Message = fmt.Sprintf("no worker of the pool %q serves %s here", p.Name, v.model)
	} else {
		e.Message = fmt.Sprintf("every worker that serves %s here is set apart for a pool", v.model)
	}
	return e
}

// forlorn refuses a waiting visit once all workers that may take it are gone or out, though others serve the model; nil
// while there is hope, such as that of a model being loaded.
func (f *floor) forlorn(v *visit, p *pool) *openai.Error {
	if len(f.orders.spec.Pools) == 0 || v.cold > 0 {
		return nil
	}
	f.assign(v) // the spec may have changed while it waited
	there := false
	for i := range p.view.Workers {
		if w := &p.view.Workers[i]; v.query.For(w) {
			if w.Down == "" {
				return nil
			}
			there = true
		}
	}
	if there {
		return openai.NoCapacity(v.model, openai.MinRetryAfter)
	}
	return f.noPool(v)
}
