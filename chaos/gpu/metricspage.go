package gpu

import (
	"strconv"
	"sync/atomic"
	"time"
)

// metricsPage writes the Prometheus text format without reflection.
type metricsPage struct {
	labels string // of every series
	buf    []byte
}

// addSingle adds a family of one series.
func (p *metricsPage) addSingle(kind, name, help string, value float64) {
	p.addFamily(kind, name, help)
	p.addSeries(name, "", "", "", value)
}

func (p *metricsPage) addFamily(kind, name, help string) {
	p.appendStrings("# HELP vllm:", name, " ", help, "\n# TYPE vllm:", name, " ", kind, "\n")
}

// addSeries adds one sample, with an additional label if it has a name.
func (p *metricsPage) addSeries(name, suffix, label, value string, sample float64) {
	p.appendStrings("vllm:", name, suffix, "{", p.labels)
	if label != "" {
		p.appendStrings(",", label, `="`, value, `"`)
	}
	p.appendStrings("} ")
	p.buf = append(strconv.AppendFloat(p.buf, sample, 'g', -1, 64), '\n')
}

func (p *metricsPage) appendStrings(parts ...string) {
	for _, s := range parts {
		p.buf = append(p.buf, s...)
	}
}

func (p *metricsPage) addHistogram(h *histogram) {
	p.addFamily("histogram", h.name, h.help)
	var total uint64
	for i := range h.counts {
		total += h.counts[i].Load()
		p.addSeries(h.name, "_bucket", "le", h.labels[i], float64(total))
	}
	p.addSeries(h.name, "_sum", "", "", time.Duration(h.sum.Load()).Seconds())
	p.addSeries(h.name, "_count", "", "", float64(total))
}

// histogram counts durations in fixed buckets.
type histogram struct {
	name   string
	help   string
	bounds []float64 // seconds, ascending
	labels []string  // the bounds as text, and +Inf
	counts []atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

func newHistogram(name, help string, bounds ...float64) *histogram {
	h := &histogram{name: name, help: help, bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
	for _, b := range bounds {
		h.labels = append(h.labels, strconv.FormatFloat(b, 'g', -1, 64))
	}
	h.labels = append(h.labels, "+Inf")
	return h
}

func (h *histogram) observeDuration(d time.Duration) {
	i, seconds := 0, d.Seconds()
	for i < len(h.bounds) && seconds > h.bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}
