package regional

import "github.com/prometheus/client_golang/prometheus"

// summaryAgeCollector collects the age of each zone instance's last summary.
type summaryAgeCollector struct{ router *sharedRouter }

func (s summaryAgeCollector) newDesc() *prometheus.Desc {
	return prometheus.NewDesc("spillway_regional_report_age_seconds", "Age of the newest capacity report, by local instance.", []string{"scope"}, nil)
}

// Describe implements prometheus.Collector.
func (s summaryAgeCollector) Describe(ch chan<- *prometheus.Desc) { ch <- s.newDesc() }

// Collect implements prometheus.Collector.
func (s summaryAgeCollector) Collect(ch chan<- prometheus.Metric) {
	for _, l := range s.router.view.Load().Locals {
		ch <- prometheus.MustNewConstMetric(s.newDesc(), prometheus.GaugeValue, l.Age.Seconds(), l.Summary.Path.String())
	}
}
