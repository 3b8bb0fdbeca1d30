package geo

import "time"

const (
	// priorWeight is the weight of the prior in samples. The prior's error is some 14 ms between measured pairs, and
	// single clients of one cell differ by some 50 ms; (50/14)^2 is about 13.
	priorWeight = 16
	// maxLastMile is the most that a client's access line adds, as commonly assumed (10 to 30 ms). It is part of the
	// gateways' measurements and not of the prior, and it is the same to every region. If it were not removed, a
	// measured region would look worse than its unmeasured neighbours.
	maxLastMile = 25 * time.Millisecond
	// cellReach is the largest distance of a cell's clients from its representative location: the diagonal of a
	// square of cellDegrees, in kilometres.
	cellReach = cellDegrees * 111.2 * 1.4142
	// roundTripKMPerMS is the distance that light in fibre covers there and back in one millisecond.
	roundTripKMPerMS = 100.0
	// MaxRTT is the longest accepted round trip: a satellite link has 0.6 s, and longer ones are broken links.
	MaxRTT = 3 * time.Second
)

// DefaultMaxMeasurementAge is how long a measured round trip counts by default. Paths seldom change. A region whose
// clients were steered elsewhere gets no new measurements; its distance is measured again about once in this time.
const DefaultMaxMeasurementAge = 6 * time.Hour

// RTTMeasurement is the measurement of one cell's clients by a region's gateways. The zero value means no
// measurement.
type RTTMeasurement struct {
	Median  time.Duration
	Samples float64
	Age     time.Duration // of the newest sample
}

// Sources of an RTTEstimate.
const (
	RTTSourcePrior      = "prior"      // no measurement
	RTTSourceMeasured   = "measured"   // prior and measurement, blended
	RTTSourceExpired    = "aged"       // the measurement is too old and does not count
	RTTSourceImpossible = "impossible" // faster than light in fibre (the client is elsewhere, or a proxy answered), or over MaxRTT
)

// RTTEstimate is the round trip to steer by, with its components.
type RTTEstimate struct {
	RTT, Prior time.Duration
	Measured   RTTMeasurement
	Source     string // one of the RTTSource constants
}

// BlendRTTs estimates the round trips between the clients of one cell, at from, and the regions at to; m holds the
// measurement of each region. Each estimate is (k*prior + n*measured)/(k+n), with k = priorWeight and n = number of
// samples. Before that, the excess that all measured regions have in common is subtracted as the clients' last mile.
// A measurement does not count if it is older than limit, faster than light, or above MaxRTT. The result is never
// below fibreFloor.
func BlendRTTs(from Location, to []Location, m []RTTMeasurement, limit time.Duration) []RTTEstimate {
	return blendEstimates(from, to, m, limit, maxLastMile)
}

// BlendGatewayRTTs is BlendRTTs between the gateways of regions, which have no last mile.
func BlendGatewayRTTs(from Location, to []Location, m []RTTMeasurement, limit time.Duration) []RTTEstimate {
	return blendEstimates(from, to, m, limit, 0)
}

// blendEstimates subtracts at most access as the last mile.
func blendEstimates(from Location, to []Location, m []RTTMeasurement, limit, access time.Duration) []RTTEstimate {
	out := make([]RTTEstimate, len(to))
	for i := range to {
		out[i] = RTTEstimate{Prior: PriorRTT(from, to[i]), Measured: m[i]}
		e := &out[i]
		e.Source = classifyMeasurement(&m[i], DistanceKM(from, to[i]), limit)
		if e.Source == RTTSourceMeasured {
			access = max(min(access, m[i].Median-e.Prior), 0)
		}
	}
	for i := range out {
		e := &out[i]
		e.RTT = e.Prior
		if e.Source != RTTSourceMeasured {
			continue
		}
		n := m[i].Samples
		blended := (priorWeight*float64(e.Prior) + n*float64(m[i].Median-access)) / (priorWeight + n)
		e.RTT = max(time.Duration(blended), fibreFloor(DistanceKM(from, to[i])))
	}
	return out
}

func classifyMeasurement(m *RTTMeasurement, km float64, limit time.Duration) string {
	switch {
	case !(m.Samples > 0) || m.Median <= 0:
		return RTTSourcePrior
	case m.Age > limit:
		return RTTSourceExpired
	case m.Median < fibreFloor(km-cellReach) || m.Median > MaxRTT:
		return RTTSourceImpossible
	}
	return RTTSourceMeasured
}

// fibreFloor is the shortest possible round trip over a distance.
func fibreFloor(km float64) time.Duration {
	return time.Duration(max(km, 0) / roundTripKMPerMS * float64(time.Millisecond))
}
