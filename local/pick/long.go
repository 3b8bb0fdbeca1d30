package pick

// HeldBack says, after a choice found nobody, whether some worker had room but for long requests' having their share of
// it already, or but for being of another pool. Such a request waits for its share and not for room: others may pass it.
func HeldBack(v *View) bool {
	for i := range v.gates {
		switch drop := v.room(i); {
		case drop == dropLong:
			return true
		case drop == dropNot && v.walled && v.barred(i) != dropNot:
			return true
		}
	}
	return false
}

// longKV is how much of a worker's KV cache long requests may hold together.
func (v *View) longKV(total int64) int64 {
	if v.LongShare > 0 && v.LongShare <= 1 {
		return int64(v.LongShare * float64(total))
	}
	return total / 2
}

// there is how much of a long prompt its worker holds already, as far as such beliefs have been true: it counts for nothing
// against the share. The bound keeps room for short requests, and a long conversation that is sent away from its cache takes as
// much room elsewhere, a second copy of it, and all the time for computing that.
func (v *View) there(at int, id int32) int64 { return int64(float64(v.held(id)) * v.lanes[at].hit) }
