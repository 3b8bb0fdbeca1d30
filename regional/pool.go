package regional

import "github.com/spillway-lb/spillway/internal/route"

// assign finds the pool of workers that the request is of, for the model that it is for now.
func (q *request) assign() {
	q.query.Pool, q.query.Overflow = "", false
	if p, _ := route.PoolOf(q.state.spec, q.tenant.Name, q.query.Model, q.query.Class); p != nil {
		q.query.Pool, q.query.Overflow = p.Name, p.Overflow
	}
}
