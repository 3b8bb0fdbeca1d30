package xdp

// Limit describes the table of the response rate limit that the program shares with the server: GCRA clocks of networks
// and classes, four to a bucket.
type Limit struct {
	Slots          int    // a power of two
	TickBits       int    // of a clock; the rest of a slot is a tag
	TicksPerSecond uint64 // a power of two
	TicksPerAnswer uint64
	MaxTicksAhead  uint64
	Seed           uint64
	StartedAt      int64 // by CLOCK_MONOTONIC, in nanoseconds
}

// Constants of MixKey, the finalizer of splitmix64 (Steele, Lea and Flood 2014).
const (
	mixMul1 = 0xbf58476d1ce4e5b9
	mixMul2 = 0x94d049bb133111eb
)

// MixKey hashes the key of a network and class. Every bit of the key affects every bit of the result.
func MixKey(key, seed uint64) uint64 {
	key ^= seed
	key = (key ^ key>>30) * mixMul1
	key = (key ^ key>>27) * mixMul2
	return key ^ key>>31
}
