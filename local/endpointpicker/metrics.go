package endpointpicker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

// pickerMetrics are the metrics of an endpoint picker. Refusals, attempts and tokens are counted by the zone's own metrics.
type pickerMetrics struct {
	streams  prometheus.Gauge
	requests *prometheus.CounterVec
	choices  prometheus.Histogram
	overflow prometheus.Counter
}

func newPickerMetrics(r prometheus.Registerer) *pickerMetrics {
	m := &pickerMetrics{
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "spillway_local_picker_streams", Help: "Streams that proxies have open at the endpoint picker: one for each of their requests.",
		}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_local_picker_requests_total",
			Help: "Requests of proxies at the endpoint picker, by outcome: complete (the answer ended), broken (the stream ended before), refused, answered (the model list), failed_open (the proxy chose itself), given_up (its worker stalled, or the instance stopped) or malformed (the stream's messages).",
		}, []string{"outcome"}),
		choices: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spillway_local_picker_choice_seconds", Help: "Time from the end of a proxy's request to the choice of its endpoint, with the wait in the queue.",
			Buckets: append(telemetry.ShortBuckets()[3:7:7], telemetry.WaitBuckets()...),
		}),
		overflow: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_local_picker_stream_refusals_total", Help: "Requests of proxies that exceeded endpoint_picker.max_streams.",
		}),
	}
	r.MustRegister(m.streams, m.requests, m.choices, m.overflow)
	return m
}
