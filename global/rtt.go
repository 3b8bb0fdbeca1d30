package global

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/global/snapshot"
)

// persistMeasured includes the RTTs in the backup from its next write on, and triggers a write when one is due.
func (k *snapshotBuilder) persistMeasured(all []snapshot.RegionRTTs, measuring int, now time.Time) {
	b := k.s.backup
	if b == nil || b.path == "" {
		return
	}
	b.currentRTTs.Store(&datedRTTs{all, k.s.cfg.MaxMeasurementAge, k.s.clock.correctedWallTime()})
	if v := k.s.snapshot.Load(); v != nil && v.source == agreedState && k.measurements.isWriteDue(measuring, now) {
		b.enqueueState(v.state)
	}
}

// describeRTT describes an RTT and its source.
func describeRTT(region string, e *geo.RTTEstimate) string {
	if e.Source == geo.RTTSourcePrior {
		return fmt.Sprintf("%s: rtt %s ms, prior by distance, nothing measured", region, formatMillis(e.RTT.Seconds()))
	}
	return fmt.Sprintf("%s: rtt %s ms, %s: median %s ms, n=%.0f, age %s; prior %s ms", region, formatMillis(e.RTT.Seconds()), e.Source,
		formatMillis(e.Measured.Median.Seconds()), e.Measured.Samples, e.Measured.Age.Round(time.Second), formatMillis(e.Prior.Seconds()))
}

// rttTXTFields returns the same for a TXT record.
func rttTXTFields(e *geo.RTTEstimate) []string {
	out := []string{"rtt_ms=" + formatMillis(e.RTT.Seconds()), "rtt_source=" + e.Source}
	if e.Source != geo.RTTSourcePrior {
		out = append(out, "rtt_n="+strconv.FormatFloat(e.Measured.Samples, 'f', 0, 64),
			"rtt_age_s="+strconv.Itoa(int(e.Measured.Age.Seconds())), "rtt_prior_ms="+formatMillis(e.Prior.Seconds()))
	}
	return out
}
