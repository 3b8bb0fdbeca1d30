package telemetry

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry makes a registry with the process's own figures and spillway_build_info, which tells dashboards who
// speaks. Nodes that share a process each have their own registry.
func NewRegistry(tier, node, version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_build_info", Help: "Always 1; the labels say which node this is and what it runs.",
		ConstLabels: prometheus.Labels{"tier": tier, "node": node, "version": version, "go": runtime.Version()},
	})
	info.Set(1)
	r.MustRegister(info)
	return r
}

// WaitBuckets are for times that a user or a request waits, from a local hop to a long queue, in seconds.
func WaitBuckets() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
}

// QuickBuckets are for work that must not be noticed, such as a DNS answer, in seconds.
func QuickBuckets() []float64 {
	return []float64{2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2.5e-4, 1e-3, 1e-2}
}
