package certfile

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// expiryCheckInterval is the time between two checks of all expiries. It is well below the smallest threshold.
const expiryCheckInterval = time.Hour

// warningThresholds are the remaining lifetimes at which a warning is logged, in ascending order.
var warningThresholds = [...]time.Duration{1 * day, 3 * day, 7 * day, 14 * day}

const day = 24 * time.Hour

// CertExpiry is a certificate of this node, or a file of authorities.
type CertExpiry struct {
	// Name is the configuration key that sets it, such as "tls.cert". Where several do, their files follow it.
	Name string
	// EndsAt returns when it expires: for a file of authorities, when the first of them does.
	EndsAt func() time.Time
}

// CertExpiries are the certificates of a node. Each has its own name.
type CertExpiries []CertExpiry

// ExpirySource returns the certificates that a node uses now, for the metric and the warnings. A nil ExpirySource
// returns none.
type ExpirySource func() CertExpiries

// ListExpiries returns the result of the source.
func (s ExpirySource) ListExpiries() CertExpiries {
	if s == nil {
		return nil
	}
	return s()
}

var descExpiry = prometheus.NewDesc("spillway_certificate_expiry_timestamp_seconds",
	"When a certificate of this node ends, in Unix time, by the configuration key that sets it.", []string{"certificate"}, nil)

// Describe implements prometheus.Collector.
func (s ExpirySource) Describe(out chan<- *prometheus.Desc) { out <- descExpiry }

// Collect implements prometheus.Collector.
func (s ExpirySource) Collect(out chan<- prometheus.Metric) {
	for _, x := range s.ListExpiries() {
		out <- prometheus.MustNewConstMetric(descExpiry, prometheus.GaugeValue, float64(x.EndsAt().Unix()), x.Name)
	}
}

// WarnExpiring logs a warning 14, 7, 3 and 1 days before a certificate expires, and every day after that, until ctx
// ends.
func (s ExpirySource) WarnExpiring(ctx context.Context, log *slog.Logger) {
	warned := map[string]expiryWarning{}
	tick := time.NewTicker(expiryCheckInterval)
	defer tick.Stop()
	for {
		now, last := time.Now(), warned
		warned = map[string]expiryWarning{} // certificates that are no longer in use are dropped
		for _, x := range s.ListExpiries() {
			at := x.EndsAt()
			w, due := nextWarning(last[x.Name], at, now)
			warned[x.Name] = w
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

// expiryWarning is the last warning logged for a certificate.
type expiryWarning struct {
	endsAt    time.Time     // the expiry that it was about; a renewed certificate has another one
	threshold time.Duration // the threshold that it was for; 0: none, negative: minus the time since the expiry
}

// nextWarning decides whether to warn at now of a certificate that expires at end: once for each threshold that is
// passed, and once a day after the expiry.
func nextWarning(last expiryWarning, end, now time.Time) (next expiryWarning, due bool) {
	if !last.endsAt.Equal(end) {
		last = expiryWarning{endsAt: end}
	}
	left := end.Sub(now)
	level := time.Duration(0)
	switch i, _ := slices.BinarySearch(warningThresholds[:], left); {
	case left <= 0:
		level = -day * (1 + -left/day)
	case i < len(warningThresholds):
		level = warningThresholds[i]
	}
	if level == 0 || last.threshold != 0 && level >= last.threshold {
		return last, false
	}
	return expiryWarning{endsAt: end, threshold: level}, true
}
