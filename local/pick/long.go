package pick

// HeldBack says, after a choice found nobody, whether some worker had room but for long requests' having their share of
// it already. Such a request waits for the share and not for room: shorter ones may pass it.
func HeldBack(v *View) bool {
	for i := range v.gates {
		if v.room(i) == dropLong {
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
