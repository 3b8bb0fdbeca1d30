package gpu

import (
	"strconv"
	"time"
)

// page writes the Prometheus text format. It appends by hand: every worker of a process is scraped every second.
type page struct {
	labels string // of every series
	b      []byte
}

// one adds a family of one series.
func (p *page) one(kind, name, help string, value float64) {
	p.family(kind, name, help)
	p.line(name, "", "", "", value)
}

func (p *page) family(kind, name, help string) {
	p.text("# HELP vllm:", name, " ", help, "\n# TYPE vllm:", name, " ", kind, "\n")
}

// line adds one sample, with one more label where it has a name.
func (p *page) line(name, suffix, label, value string, sample float64) {
	p.text("vllm:", name, suffix, "{", p.labels)
	if label != "" {
		p.text(",", label, `="`, value, `"`)
	}
	p.text("} ")
	p.b = append(strconv.AppendFloat(p.b, sample, 'g', -1, 64), '\n')
}

func (p *page) text(parts ...string) {
	for _, s := range parts {
		p.b = append(p.b, s...)
	}
}

func (p *page) histogram(h *histogram) {
	p.family("histogram", h.name, h.help)
	var total uint64
	for i := range h.counts {
		total += h.counts[i].Load()
		p.line(h.name, "_bucket", "le", h.labels[i], float64(total))
	}
	p.line(h.name, "_sum", "", "", time.Duration(h.sum.Load()).Seconds())
	p.line(h.name, "_count", "", "", float64(total))
}
