package telemetry

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry returns a registry with the metrics of the Go runtime and the process, and spillway_build_info, which identifies
// the node. Nodes in one process have separate registries.
func NewRegistry(tier, node, version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_build_info", Help: "Always 1; the labels identify the node and its version.",
		ConstLabels: prometheus.Labels{"tier": tier, "node": node, "version": version, "go": runtime.Version()},
	})
	info.Set(1)
	r.MustRegister(info)
	return r
}

// WaitBuckets returns histogram buckets for latencies of requests, from a local hop to a long queue, in seconds.
func WaitBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
}

// ShortBuckets returns histogram buckets for short CPU work, such as building a DNS answer, in seconds.
func ShortBuckets() []float64 {
	return []float64{2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2.5e-4, 1e-3, 1e-2}
}
