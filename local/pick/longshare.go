package pick

// IsHeldBack reports, after a choice without a worker, whether some worker had room except for the share of long
// requests or except for its pool. Such a request waits for its share and not for room, so others may overtake it.
func IsHeldBack(v *WorkerView) bool {
	for i := range v.admissionInputs {
		switch drop := v.checkRoom(i); {
		case drop == ineligibleLongShare:
			return true
		case drop == eligible && v.poolsMatter && v.poolIneligibility(i) != eligible:
			return true
		}
	}
	return false
}

// longKVLimit returns how much of a worker's KV cache long requests may hold together, in tokens.
func (v *WorkerView) longKVLimit(total int64) int64 {
	if v.LongShare > 0 && v.LongShare <= 1 {
		return int64(v.LongShare * float64(total))
	}
	return total / 2
}

// cachedKVOn returns how much of a long prompt the worker holds already, in tokens, scaled by its hit rate. It does not
// count against the share. The bound keeps room for short requests; a long conversation that is sent away from its
// cache needs as much room for a second copy on another worker, and the time to compute it.
func (v *WorkerView) cachedKVOn(at int, id int32) int64 {
	return int64(float64(v.cachedTokensOn(id)) * v.boundInputs[at].hitRate)
}
