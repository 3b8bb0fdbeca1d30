package pick

import "github.com/spillway-lb/spillway/internal/explain"

// among screens the workers that the request may go to: those of its pools or, where it has none, those of no pool. A
// request that may overflow goes to those of no pool as well, once its own have no room.
func (v *View) among(rec *explain.Record) string {
	v.open = v.q.Pools == 0
	v.walled = v.pooled || !v.open
	if v.q.Overflow && !v.open {
		v.screen(nil)
		v.open = len(v.cands) == 0
	}
	return v.screen(rec)
}

// barred says whether worker at may not take the request at all.
func (v *View) barred(at int) drop {
	switch pools := v.Workers[at].Pools; {
	case pools&v.q.Pools != 0 || pools == 0 && v.open:
		return dropNot
	case pools != 0:
		return dropKept
	}
	return dropApart
}

// Walled says, after a choice found nobody, that room is lacking on the request's own workers while others, of other pools,
// may have some. It is not waiting for long requests' share.
func Walled(v *View) bool {
	if !v.walled {
		return false
	}
	for i := range v.gates {
		if v.barred(i) == dropNot && v.room(i) == dropLong {
			return false
		}
	}
	return true
}

// For says whether a worker is for the request, had it room: by its pools alone.
func (q *Query) For(w *Worker) bool {
	return w.Pools&q.Pools != 0 || w.Pools == 0 && (q.Pools == 0 || q.Overflow)
}
