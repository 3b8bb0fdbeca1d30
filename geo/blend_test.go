package geo

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// threeRegions are Ashburn, Frankfurt and Tokyo.
func threeRegions() []Location { return []Location{ashburn, frankfurt, tokyo} }

const ms = time.Millisecond

// blendFrankfurt returns the estimate from Frankfurt for its own region, with a measured median.
func blendFrankfurt(median time.Duration, n float64, age time.Duration) RTTEstimate {
	m := make([]RTTMeasurement, 3)
	m[1] = RTTMeasurement{Median: median, Samples: n, Age: age}
	return BlendRTTs(frankfurt, threeRegions(), m, time.Hour)[1]
}

func TestBlendedRTTs(t *testing.T) {
	prior := PriorRTT(frankfurt, frankfurt)
	for _, c := range []struct {
		name   string
		median time.Duration
		n      float64
		age    time.Duration
		want   time.Duration
		source string
	}{
		{"nothing was measured", 0, 0, 0, prior, RTTSourcePrior},
		{"no sample is left", 300 * ms, 0, 0, prior, RTTSourcePrior},
		{"a last mile is no distance", prior + 20*ms, 1000, 0, prior, RTTSourceMeasured},
		{"as many samples as the prior is worth", prior + 225*ms, priorWeight, 0, prior + 100*ms, RTTSourceMeasured},
		{"three times as many", prior + 225*ms, 3 * priorWeight, 0, prior + 150*ms, RTTSourceMeasured},
		{"faster than the prior", prior / 2, priorWeight, 0, prior * 3 / 4, RTTSourceMeasured},
		{"too old", 300 * ms, 1000, time.Hour + 1, prior, RTTSourceExpired},
		{"a broken link", MaxRTT + 1, 1000, 0, prior, RTTSourceImpossible},
	} {
		got := blendFrankfurt(c.median, c.n, c.age)
		if d := got.RTT - c.want; d < -time.Microsecond || d > time.Microsecond || got.Source != c.source || got.Prior != prior {
			t.Errorf("%s: %v by %s, want %v by %s", c.name, got.RTT, got.Source, c.want, c.source)
		}
	}
}

// TestImpossibleRTT: a connection from loopback, or from a proxy near the gateway, is no client on another continent.
func TestImpossibleRTT(t *testing.T) {
	m := []RTTMeasurement{{}, {}, {Median: 5 * ms, Samples: 1e6}}
	if e := BlendRTTs(frankfurt, threeRegions(), m, time.Hour)[2]; e.Source != RTTSourceImpossible || e.RTT != e.Prior {
		t.Errorf("Frankfurt to Tokyo in 5 ms: %+v", e)
	}
}

// TestLastMileChangesNoChoice: the common excess of all measured regions is the client's own access line.
func TestLastMileChangesNoChoice(t *testing.T) {
	m := make([]RTTMeasurement, 3)
	for i, at := range threeRegions() {
		m[i] = RTTMeasurement{Median: PriorRTT(frankfurt, at) + 24*ms, Samples: 500}
	}
	for _, e := range BlendRTTs(frankfurt, threeRegions(), m, time.Hour) {
		if d := e.RTT - e.Prior; d < -time.Microsecond || d > time.Microsecond {
			t.Errorf("%v for a prior of %v", e.RTT, e.Prior)
		}
	}
	m[2].Median += 100 * ms
	if e := BlendRTTs(frankfurt, threeRegions(), m, time.Hour); e[2].RTT-e[2].Prior < 90*ms || e[0].RTT-e[0].Prior > ms {
		t.Errorf("the detour to Tokyo does not show: %+v", e)
	}
}

func TestBlendInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := genLocation(t, "from"), []Location{genLocation(t, "a"), genLocation(t, "b")}
		m := make([]RTTMeasurement, len(to))
		for i := range m {
			m[i] = RTTMeasurement{
				Median:  time.Duration(rapid.Int64Range(-1, int64(4*time.Second)).Draw(t, "median")),
				Samples: rapid.Float64Range(-1, 1e9).Draw(t, "samples"),
				Age:     time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "age")),
			}
		}
		for i, e := range BlendRTTs(from, to, m, time.Hour) {
			if e.RTT < fibreFloor(DistanceKM(from, to[i])) || e.RTT > max(e.Prior, MaxRTT) {
				t.Fatalf("%v over %.0f km", e.RTT, DistanceKM(from, to[i]))
			}
			if e.Source != RTTSourceMeasured && e.RTT != e.Prior {
				t.Fatalf("%s changes %v to %v", e.Source, e.Prior, e.RTT)
			}
			lo, hi := min(e.Prior, m[i].Median-maxLastMile), max(e.Prior, m[i].Median)
			if e.Source == RTTSourceMeasured && (e.RTT < lo-1 || e.RTT > hi+1) {
				t.Fatalf("%v is outside of %v and %v", e.RTT, lo, hi)
			}
		}
	})
}

// TestMoreSamplesWeighMore: more samples move the blend from the prior towards the measurement and never past it.
func TestMoreSamplesWeighMore(t *testing.T) {
	last := PriorRTT(frankfurt, frankfurt)
	for n := 1.0; n < 1e6; n *= 3 {
		got := blendFrankfurt(200*ms, n, 0).RTT
		if got <= last || got > 200*ms {
			t.Fatalf("%v with %g samples, %v with fewer", got, n, last)
		}
		last = got
	}
}

// TestGatewayRTTsHaveNoLastMile: a common excess is the access line for clients, and distance between gateways.
func TestGatewayRTTsHaveNoLastMile(t *testing.T) {
	from, to := Location{Lat: 39, Lon: -77.5}, []Location{{Lat: 50, Lon: 8.7}, {Lat: 35.7, Lon: 139.7}}
	m := make([]RTTMeasurement, len(to))
	for i := range to {
		m[i] = RTTMeasurement{Median: PriorRTT(from, to[i]) + 20*time.Millisecond, Samples: 1e9}
	}
	clients, paths := BlendRTTs(from, to, m, time.Hour), BlendGatewayRTTs(from, to, m, time.Hour)
	for i := range to {
		if d := clients[i].RTT - clients[i].Prior; d.Abs() > time.Microsecond {
			t.Errorf("to %d clients are %s over the prior, want nothing", i, d)
		}
		if d := paths[i].RTT - paths[i].Prior; (d - 20*time.Millisecond).Abs() > time.Microsecond {
			t.Errorf("to %d the path is %s over the prior, want 20ms", i, d)
		}
	}
}

// TestBlendKeepsFibreFloor: a measurement from clients nearer than the cell's centre passes the check by cellReach,
// and still does not move the blend below the fibre floor of the centre.
func TestBlendKeepsFibreFloor(t *testing.T) {
	m := make([]RTTMeasurement, 3)
	for i, at := range threeRegions() {
		km := DistanceKM(frankfurt, at)
		if km < 2*cellReach {
			continue
		}
		m[i] = RTTMeasurement{Median: fibreFloor(km-cellReach) + time.Microsecond, Samples: 1e9}
		e := BlendRTTs(frankfurt, threeRegions(), m, time.Hour)[i]
		if e.Source != RTTSourceMeasured || e.RTT != fibreFloor(km) {
			t.Errorf("to region %d, %.0f km away, measured %v: %v by %s, want the floor of %v", i, km, m[i].Median, e.RTT, e.Source, fibreFloor(km))
		}
		m[i] = RTTMeasurement{}
	}
}
