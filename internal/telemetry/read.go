package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// HistogramTotals are the observations of a histogram since the start of the process.
type HistogramTotals struct {
	Bounds []float64 // upper bounds of the buckets
	Counts []uint64  // by bucket, not cumulative; the last one is above all bounds
	Sum    float64
}

// ReadHistograms returns the totals of a histogram vector by the value of one label, summed over the others.
func ReadHistograms(c prometheus.Collector, label string) map[string]HistogramTotals {
	out := map[string]HistogramTotals{}
	for _, m := range collectMetrics(c) {
		h := m.GetHistogram()
		key := labelValue(m, label)
		t, ok := out[key]
		if !ok {
			t.Counts = make([]uint64, len(h.GetBucket())+1)
			for _, b := range h.GetBucket() {
				t.Bounds = append(t.Bounds, b.GetUpperBound())
			}
		}
		below := uint64(0)
		for i, b := range h.GetBucket() {
			t.Counts[i] += b.GetCumulativeCount() - below
			below = b.GetCumulativeCount()
		}
		t.Counts[len(t.Counts)-1] += h.GetSampleCount() - below
		t.Sum += h.GetSampleSum()
		out[key] = t
	}
	return out
}

// ReadCounters returns the values of a counter vector by the value of one label, summed over the others.
func ReadCounters(c prometheus.Collector, label string) map[string]float64 {
	out := map[string]float64{}
	for _, m := range collectMetrics(c) {
		out[labelValue(m, label)] += m.GetCounter().GetValue()
	}
	return out
}

// collectMetrics returns the metrics of a collector that can be read.
func collectMetrics(c prometheus.Collector) (out []*dto.Metric) {
	found := make(chan prometheus.Metric)
	go func() {
		c.Collect(found)
		close(found)
	}()
	for metric := range found {
		m := new(dto.Metric)
		if metric.Write(m) == nil {
			out = append(out, m)
		}
	}
	return out
}

func labelValue(m *dto.Metric, label string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == label {
			return l.GetValue()
		}
	}
	return ""
}
