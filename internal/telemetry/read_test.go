package telemetry_test

import (
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/internal/telemetry"
)

func TestReadHistogramsSumsOverOtherLabels(t *testing.T) {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "x", Help: "x", Buckets: []float64{1, 2}}, []string{"model", "class"})
	v.WithLabelValues("a", "batch").Observe(0.5)
	v.WithLabelValues("a", "standard").Observe(1.5)
	v.WithLabelValues("a", "standard").Observe(9)
	v.WithLabelValues("b", "batch").Observe(2.5)
	got := telemetry.ReadHistograms(v, "model")
	if len(got) != 2 {
		t.Fatalf("got %d models, want 2: %v", len(got), got)
	}
	a := got["a"]
	if !slices.Equal(a.Bounds, []float64{1, 2}) || !slices.Equal(a.Counts, []uint64{1, 1, 1}) || a.Sum != 11 {
		t.Errorf("model a is %+v, want one observation in each bucket and the sum 11", a)
	}
	if b := got["b"]; !slices.Equal(b.Counts, []uint64{0, 0, 1}) {
		t.Errorf("model b is %+v", b)
	}
}

func TestReadCountersSumsOverOtherLabels(t *testing.T) {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x", Help: "x"}, []string{"to", "reason"})
	v.WithLabelValues("fra", "wait").Add(2)
	v.WithLabelValues("fra", "full").Add(3)
	v.WithLabelValues("tokyo", "full").Add(1)
	got := telemetry.ReadCounters(v, "to")
	if got["fra"] != 5 || got["tokyo"] != 1 || len(got) != 2 {
		t.Errorf("got %v, want fra 5 and tokyo 1", got)
	}
}
