package health

// MaxEjected is the part of a pool that passive failures alone may take out. Beyond it the failures are more likely
// the requests' fault or ours than the workers', and the rest is kept.
const MaxEjected = 0.5

// MayEject says whether one more of a pool may be taken out for a passive failure, given how many are out already.
// Workers that are known to be gone (refused, failing probes, broken) are never kept for the sake of the pool.
func MayEject(k Kind, out, total int) bool {
	if k != Soft {
		return true
	}
	return float64(out+1) <= MaxEjected*float64(total) || total == 1
}
