package sched

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/local/pick"
)

// DestinationLimit is where the proxy that asks for an endpoint can send a request.
type DestinationLimit struct {
	// Subset are the addresses that the proxy allows, as WorkerSpec.Address has them; nil allows all.
	Subset map[string]struct{}
}

// allowsAddress reports whether the proxy can send a request to an address.
func (d *DestinationLimit) allowsAddress(address string) bool {
	if d.Subset == nil {
		return address != ""
	}
	_, ok := d.Subset[address]
	return ok && address != ""
}

// limitDestinations restricts a request to the workers of a model that its proxy can send it to. It is computed for each
// placement, because a ledger slot may be another worker's by then.
func (a *Admission) limitDestinations(v *Request, p *modelGroup) {
	v.Query.Only = nil
	if v.Destinations == nil {
		return
	}
	only, all := pick.WorkerSet(v.onlyBuffer[:0]), true
	for _, w := range p.workers {
		if v.Destinations.allowsAddress(w.Spec.Address) {
			only = only.AddWorker(w.ledgerID)
		} else {
			all = false
		}
	}
	if !all {
		v.Query.Only = only
	}
}

// HasReadyDestination reports whether a worker that may take the request takes requests now. A refused request was then refused
// for lack of room.
func (a *Admission) HasReadyDestination(v *Request) bool {
	p := a.groups[v.Model]
	if p == nil {
		return false
	}
	a.limitDestinations(v, p)
	for i := range p.view.Workers {
		if w := &p.view.Workers[i]; w.DownReason == "" && v.Query.AllowsWorker(w) {
			return true
		}
	}
	return false
}

// ListFallbacks returns the addresses of up to n further workers with room, the best first: the proxy tries them in this order
// if the worker of the attempt does not answer. Nothing is reserved on them.
func (a *Admission) ListFallbacks(at *Attempt, n int, now time.Time) (out []string) {
	v, p := at.Request, at.group
	q := v.Query
	q.Exclude = append(slices.Clone(q.Exclude), at.Choice.ID)
	for range n {
		choice, ok := pick.PeekWorker(&q, p.view, now, a.rng, nil)
		if !ok {
			break
		}
		out = append(out, p.workers[choice.Index].Spec.Address)
		q.Exclude = append(q.Exclude, choice.ID)
	}
	return out
}

// DispatchTo enters a request in the in-flight ledger for the worker at an address, which the proxy has chosen from the
// fallbacks. It returns nil if no worker of the model has the address.
func (a *Admission) DispatchTo(v *Request, address string, now time.Time) *Attempt {
	p := a.groups[v.Model]
	if p == nil || address == "" {
		return nil
	}
	at := slices.IndexFunc(p.workers, func(w *Worker) bool { return w.Spec.Address == address })
	if at < 0 {
		return nil
	}
	return a.recordDispatch(v, p, pick.Choice{Index: at, ID: p.workers[at].ledgerID, Reason: reasonFallback}, now)
}

// reasonFallback is the reason of an attempt whose worker the proxy took from the fallbacks.
const reasonFallback = "proxy_fallback"
