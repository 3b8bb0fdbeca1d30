package lab

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// outcome is what is kept of a run.
type outcome struct {
	figures          map[string]sample
	tenants, regions map[string]map[string]sample
	ttft             sim.Dist
	counts           sim.Counts
	load             []float64
	limit            string
	short            string // the trace's end, where it came early
}

// metGood is the attainment below which a row says what limits it.
const metGood = 0.99

func outcomeOf(r *sim.Result, slo *SLO) *outcome {
	o := &outcome{figures: map[string]sample{}, ttft: r.TTFT, counts: r.Measured, limit: bottleneck(r, slo, metGood)}
	for i := range metrics {
		v, why := metrics[i].of(r)
		o.figures[metrics[i].name] = sample{v: v, why: why}
	}
	o.tenants, o.regions = partsOf(r.Tenants, r.Window), partsOf(r.Regions, r.Window)
	if len(o.regions) < 2 {
		o.regions = nil // the whole
	}
	for i := range r.Workers {
		o.load = append(o.load, ratio(r.Workers[i].Busy, r.Ended.Seconds()))
	}
	slices.SortFunc(o.load, func(a, b float64) int { return cmp.Compare(b, a) })
	return o
}

func partsOf(parts []sim.Part, window time.Duration) map[string]map[string]sample {
	if len(parts) == 0 {
		return nil
	}
	out := map[string]map[string]sample{}
	for i := range parts {
		figures := map[string]sample{}
		for k := range metrics {
			if metrics[k].part != nil {
				v, why := metrics[k].part(&parts[i], window)
				figures[metrics[k].name] = sample{v: v, why: why}
			}
		}
		out[parts[i].Name] = figures
	}
	return out
}

// sum turns what was played into a report's rows, in the order of the file.
func (p *play) sum(r *Report) {
	for i := range r.Cases {
		r.Cases[i].Rows, r.Cases[i].Capacity = nil, nil
	}
	for _, list := range [][]*trial{p.rows, p.last} {
		for _, s := range list {
			seeds := s.playedJobs()
			if len(seeds) == 0 {
				continue
			}
			c := &r.Cases[seeds[0].at]
			if seeds[0].search {
				c.Capacity = append(c.Capacity, capacityRow(seeds))
				continue
			}
			row := rowOf(seeds)
			if row.Value != nil && c.Knee != nil && c.Knee.Load == 0 {
				load := c.Knee.of(*row.Value)
				row.Load = &load
			}
			c.Rows = append(c.Rows, row)
		}
	}
	for i := range r.Cases { // by value, then by policy
		c := &r.Cases[i]
		c.warn()
		slices.SortStableFunc(c.Rows, func(a, b Row) int {
			if a.Value == nil || b.Value == nil {
				return 0
			}
			return cmp.Compare(*a.Value, *b.Value)
		})
	}
}

// warn says of which rows the trace ended early.
func (c *CaseReport) warn() {
	c.Warnings = nil
	add := func(policy, short string) {
		if w := policy + ": " + short; short != "" && len(c.Warnings) < 10 && !slices.Contains(c.Warnings, w) {
			c.Warnings = append(c.Warnings, w)
		}
	}
	for i := range c.Rows {
		r := &c.Rows[i]
		who := r.Policy
		if r.Value != nil {
			who += " at " + plainNumber(*r.Value)
		}
		add(who, r.short)
	}
	for i := range c.Capacity {
		add(c.Capacity[i].Policy+"'s capacity", c.Capacity[i].short)
	}
}

// at is what was asked in this row.
func (r *Row) at() float64 {
	if r.Load != nil {
		return *r.Load
	}
	return *r.Value
}

// load is what was asked, as a table shows it.
func (c *CaseReport) load(r *Row) string {
	if r.Load == nil {
		return plainNumber(*r.Value)
	}
	at := *r.Load
	if c.Vary != "rate" {
		at = float64(whole(at))
	}
	return fmt.Sprintf("%s (%s)", three(at), plainNumber(*r.Value))
}

func rowOf(seeds []*job) Row {
	row := Row{Policy: seeds[0].policy, Value: seeds[0].value, Seeds: len(seeds), Figures: map[string]Spread{}}
	var ttft sim.Dist
	for i := range metrics {
		row.Figures[metrics[i].name] = over(seeds, &metrics[i], func(o *outcome) map[string]sample { return o.figures })
	}
	row.Tenants = partSpreads(seeds, func(o *outcome) map[string]map[string]sample { return o.tenants })
	row.Regions = partSpreads(seeds, func(o *outcome) map[string]map[string]sample { return o.regions })
	for _, j := range seeds {
		ttft.Merge(&j.outcome.ttft)
		row.Sent += j.outcome.counts.Sent
		row.Answered += j.outcome.counts.Completed
		for code, n := range j.outcome.counts.Reasons {
			if row.Refusals == nil {
				row.Refusals = map[string]int64{}
			}
			row.Refusals[code] += n
		}
		row.short = cmp.Or(row.short, j.outcome.short)
	}
	row.Limit = middling(seeds, func(j *job) sample { return j.outcome.figures["attainment"] }).outcome.limit
	row.TTFT = curve(&ttft, ratio(float64(row.Answered), float64(row.Sent)))
	row.Busy = seeds[0].outcome.load[:min(len(seeds[0].outcome.load), 200)]
	return row
}

// middling is the seed whose figure, of which more is better, is the median: what is said in words beside medians is then true
// of it. A seed without a figure is worse than any with one.
func middling(seeds []*job, of func(*job) sample) *job {
	rank := func(j *job) float64 {
		if s := of(j); s.why == "" {
			return s.v
		}
		return math.Inf(-1)
	}
	sorted := slices.Clone(seeds)
	slices.SortStableFunc(sorted, func(a, b *job) int { return cmp.Compare(rank(a), rank(b)) })
	return sorted[len(sorted)/2]
}

func over(seeds []*job, m *metric, figures func(*outcome) map[string]sample) Spread {
	var list []sample
	for _, j := range seeds {
		list = append(list, figures(j.outcome)[m.name])
	}
	return spread(list, m.less)
}

func partSpreads(seeds []*job, parts func(*outcome) map[string]map[string]sample) map[string]map[string]Spread {
	if len(parts(seeds[0].outcome)) == 0 {
		return nil
	}
	out := map[string]map[string]Spread{}
	for name := range parts(seeds[0].outcome) {
		figures := map[string]Spread{}
		for i := range metrics {
			if metrics[i].part != nil {
				figures[metrics[i].name] = over(seeds, &metrics[i], func(o *outcome) map[string]sample { return parts(o)[name] })
			}
		}
		out[name] = figures
	}
	return out
}

// curvePoints is how many points of a distribution are kept.
const curvePoints = 120

// curve thins a cumulative distribution, scaled so that it ends at the part that was answered.
func curve(d *sim.Dist, answered float64) []Point {
	var out []Point
	last := -1.0
	d.Curve(func(v time.Duration, share float64) {
		if share-last >= 1.0/curvePoints || share >= 1 || len(out) == 0 {
			out = append(out, Point{v.Seconds(), share * answered})
			last = share
		}
	})
	return out
}

func capacityRow(seeds []*job) CapacityRow {
	row := CapacityRow{Policy: seeds[0].policy, Seeds: len(seeds)}
	var bars []float64
	var list []sample
	for _, j := range seeds {
		list = append(list, j.found.sample)
		if j.found.bar > 0 {
			bars = append(bars, j.found.bar)
		}
		row.Probes = append(row.Probes, j.found.probes...)
		row.short = cmp.Or(row.short, j.found.short)
	}
	row.Spread = spread(list, false)
	row.Limit = middling(seeds, func(j *job) sample { return j.found.sample }).found.limit
	if slices.Sort(bars); len(bars) > 0 {
		row.bar = bars[len(bars)/2]
	}
	slices.SortStableFunc(row.Probes, func(a, b Probe) int { return cmp.Compare(a.Value, b.Value) })
	return row
}
