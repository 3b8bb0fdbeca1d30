package pick

import "github.com/spillway-lb/spillway/internal/explain"

// screenPools screens the workers that the request may use: those of its pools or, if it has none, those in no pool. A
// request that may overflow also uses workers in no pool once its own have no room.
func (v *WorkerView) screenPools(rec *explain.Explanation) string {
	v.unpooledAllowed = v.query.Pools == 0
	v.poolsMatter = v.anyPooled || !v.unpooledAllowed
	if v.query.Overflow && !v.unpooledAllowed {
		v.screenWorkers(nil)
		v.unpooledAllowed = len(v.candidates) == 0
	}
	return v.screenWorkers(rec)
}

// poolIneligibility returns why worker at may not take the request at all, by its pools.
func (v *WorkerView) poolIneligibility(at int) ineligibility {
	switch pools := v.Workers[at].Pools; {
	case pools&v.query.Pools != 0 || pools == 0 && v.unpooledAllowed:
		return eligible
	case pools != 0:
		return ineligibleReserved
	}
	return ineligibleWrongPool
}

// IsBlockedByPool reports, after a choice without a worker, that the request's own workers have no room while workers
// of other pools may have some. The request is then not waiting for the share of long requests.
func IsBlockedByPool(v *WorkerView) bool {
	if !v.poolsMatter {
		return false
	}
	for i := range v.admissionInputs {
		if v.poolIneligibility(i) == eligible && v.checkRoom(i) == ineligibleLongShare {
			return false
		}
	}
	return true
}

// AllowsWorker reports whether the request's pools allow the worker, independent of room.
func (q *PlacementQuery) AllowsWorker(w *WorkerSnapshot) bool {
	return w.Pools&q.Pools != 0 || w.Pools == 0 && (q.Pools == 0 || q.Overflow)
}
