package geo

import "time"

const (
	// priorWeight is how many samples the prior is worth: it is off by some 14 ms between measured pairs, and single
	// clients of one cell differ by some 50 ms from each other; (50/14)^2 is about 13.
	priorWeight = 16
	// lastMile is the most that a client's own access costs, as commonly assumed (10 to 30 ms). It is in what gateways
	// measure and not in the prior, and it is the same to every region. Were it left in, a region would look worse than
	// its neighbours for no other reason than that it was measured.
	lastMile = 25 * time.Millisecond
	// cellReach is how far a cell's clients may be from the place that stands for it: the diagonal of a square of
	// cellDegrees, in kilometres.
	cellReach = cellDegrees * 111.2 * 1.4142
	// fibreKM is how far light in fibre gets and back in a millisecond.
	fibreKM = 100.0
	// MaxRTT is the longest round trip that is believed: a satellite's is 0.6 s, and beyond is a broken link.
	MaxRTT = 3 * time.Second
)

// MeasuredFor is how long a measured round trip counts by default. Paths seldom change, and a region whose clients were
// sent elsewhere is not measured any more: its distance is found out anew about once in this time.
const MeasuredFor = 6 * time.Hour

// Measured is what a region's gateways measured of one cell's clients. The zero Measured is nothing.
type Measured struct {
	Median  time.Duration
	Samples float64
	Age     time.Duration // of the newest sample
}

// Sources of an Estimate.
const (
	RTTPrior      = "prior"      // nothing was measured
	RTTMeasured   = "measured"   // prior and measurement, blended
	RTTAged       = "aged"       // the measurement is too old, and does not count
	RTTImpossible = "impossible" // faster than light in fibre (the client is elsewhere, or a proxy answered), or over MaxRTT
)

// Estimate is the round trip to steer by, and what it is made of.
type Estimate struct {
	RTT, Prior time.Duration
	Measured   Measured
	Source     string // one of the RTT words
}

// Blend estimates the round trips between one cell's clients, at from, and the regions at to; m holds what each region
// measured. Each is (k*prior + n*measured)/(k+n), k being what the prior is worth and n the samples, after what all
// measured regions' excess has in common was taken off as the clients' last mile. A measurement older than limit, or
// faster than light or absurdly slow, does not count. The result is never under the fibre floor.
func Blend(from Place, to []Place, m []Measured, limit time.Duration) []Estimate {
	return estimates(from, to, m, limit, lastMile)
}

// BlendPaths is Blend between regions' own gateways, which have no last mile.
func BlendPaths(from Place, to []Place, m []Measured, limit time.Duration) []Estimate {
	return estimates(from, to, m, limit, 0)
}

// estimates takes at most access off as the last mile.
func estimates(from Place, to []Place, m []Measured, limit, access time.Duration) []Estimate {
	out := make([]Estimate, len(to))
	for i := range to {
		out[i] = Estimate{Prior: RTT(from, to[i]), Measured: m[i]}
		e := &out[i]
		e.Source = judge(&m[i], DistanceKM(from, to[i]), limit)
		if e.Source == RTTMeasured {
			access = max(min(access, m[i].Median-e.Prior), 0)
		}
	}
	for i := range out {
		e := &out[i]
		e.RTT = e.Prior
		if e.Source != RTTMeasured {
			continue
		}
		n := m[i].Samples
		blended := (priorWeight*float64(e.Prior) + n*float64(m[i].Median-access)) / (priorWeight + n)
		e.RTT = max(time.Duration(blended), floor(DistanceKM(from, to[i])))
	}
	return out
}

func judge(m *Measured, km float64, limit time.Duration) string {
	switch {
	case !(m.Samples > 0) || m.Median <= 0:
		return RTTPrior
	case m.Age > limit:
		return RTTAged
	case m.Median < floor(km-cellReach) || m.Median > MaxRTT:
		return RTTImpossible
	}
	return RTTMeasured
}

// floor is the least round trip over a distance.
func floor(km float64) time.Duration {
	return time.Duration(max(km, 0) / fibreKM * float64(time.Millisecond))
}
