package certfile

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// checkEvery is how often expiries are looked at. It is well below the last threshold.
const checkEvery = time.Hour

// thresholds are the times before an expiry at which a warning is written, in ascending order.
var thresholds = [...]time.Duration{1 * day, 3 * day, 7 * day, 14 * day}

const day = 24 * time.Hour

// Expiry is a certificate of this node, or a file of authorities.
type Expiry struct {
	// Name is the configuration key that sets it, such as "tls.cert".
	Name string
	// At is when it ends, or its first certificate does.
	At func() time.Time
}

// Expiries are all certificates of a node: they are a metric, and warned of.
type Expiries []Expiry

var descExpiry = prometheus.NewDesc("spillway_certificate_expiry_timestamp_seconds",
	"When a certificate of this node ends, in Unix time, by the configuration key that sets it.", []string{"certificate"}, nil)

// Describe implements prometheus.Collector.
func (e Expiries) Describe(out chan<- *prometheus.Desc) { out <- descExpiry }

// Collect implements prometheus.Collector.
func (e Expiries) Collect(out chan<- prometheus.Metric) {
	for _, x := range e {
		out <- prometheus.MustNewConstMetric(descExpiry, prometheus.GaugeValue, float64(x.At().Unix()), x.Name)
	}
}

// Run warns 14, 7, 3 and 1 days before a certificate ends, and each day after its end, until ctx ends.
func (e Expiries) Run(ctx context.Context, log *slog.Logger) {
	warned := make([]warning, len(e))
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		now := time.Now()
		for i, x := range e {
			at := x.At()
			w, due := nextWarning(warned[i], at, now)
			warned[i] = w
			switch {
			case !due:
			case !now.Before(at):
				log.Warn("certificate has expired: peers and clients refuse it; replace its file", "certificate", x.Name, "expired", at)
			default:
				log.Warn("certificate expires soon: replace its file before then", "certificate", x.Name, "expires", at,
					"days_left", int(at.Sub(now)/day))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// warning is the last one that was written about a certificate.
type warning struct {
	of    time.Time     // the end that it was about: another one is a new certificate
	level time.Duration // the threshold that it was for; 0: none, negative: so long after the end
}

// nextWarning decides whether to warn at now of a certificate that ends at end: once for each threshold that is passed,
// and once a day after the end.
func nextWarning(last warning, end, now time.Time) (next warning, due bool) {
	if !last.of.Equal(end) {
		last = warning{of: end}
	}
	left := end.Sub(now)
	level := time.Duration(0)
	switch i, _ := slices.BinarySearch(thresholds[:], left); {
	case left <= 0:
		level = -day * (1 + -left/day)
	case i < len(thresholds):
		level = thresholds[i]
	}
	if level == 0 || last.level != 0 && level >= last.level {
		return last, false
	}
	return warning{of: end, level: level}, true
}
