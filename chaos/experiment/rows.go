package experiment

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/sim"
)

// runOutcome is the part of a run's result that is kept.
type runOutcome struct {
	figures          map[string]seedFigure
	tenants, regions map[string]map[string]seedFigure
	ttft             sim.Distribution
	counts           sim.RequestCounts
	workerBusy       []float64
	limit            string
	earlyEnd         string // the end of a trace that ended early
}

// goodAttainment is the attainment below which a row states its limit.
const goodAttainment = 0.99

func newRunOutcome(r *sim.RunResult, slo *SLO) *runOutcome {
	o := &runOutcome{figures: map[string]seedFigure{}, ttft: r.TTFT, counts: r.Measured, limit: explainMissedSLO(r, slo, goodAttainment)}
	for i := range metrics {
		v, why := metrics[i].ofRun(r)
		o.figures[metrics[i].name] = seedFigure{value: v, missing: why}
	}
	o.tenants, o.regions = partFigures(r.Tenants, r.Window), partFigures(r.Regions, r.Window)
	if len(o.regions) < 2 {
		o.regions = nil // the whole
	}
	for i := range r.Workers {
		o.workerBusy = append(o.workerBusy, ratioOrZero(r.Workers[i].BusySeconds, r.EndedAt.Seconds()))
	}
	slices.SortFunc(o.workerBusy, func(a, b float64) int { return cmp.Compare(b, a) })
	return o
}

func partFigures(parts []sim.Breakdown, window time.Duration) map[string]map[string]seedFigure {
	if len(parts) == 0 {
		return nil
	}
	out := map[string]map[string]seedFigure{}
	for i := range parts {
		figures := map[string]seedFigure{}
		for k := range metrics {
			if metrics[k].ofPart != nil {
				v, why := metrics[k].ofPart(&parts[i], window)
				figures[metrics[k].name] = seedFigure{value: v, missing: why}
			}
		}
		out[parts[i].Name] = figures
	}
	return out
}

// makeRows converts the results into a report's rows, in the order of the file.
func (p *experimentRun) makeRows(r *Report) {
	for i := range r.Cases {
		r.Cases[i].Rows, r.Cases[i].Capacity = nil, nil
	}
	for _, list := range [][]*policyRuns{p.mainRuns, p.comparisonRuns} {
		for _, s := range list {
			seeds := s.doneJobs()
			if len(seeds) == 0 {
				continue
			}
			c := &r.Cases[seeds[0].caseIndex]
			if seeds[0].search {
				c.Capacity = append(c.Capacity, makeCapacityRow(seeds))
				continue
			}
			row := makeRow(seeds)
			if row.Value != nil && c.Knee != nil && c.Knee.Load == 0 {
				load := c.Knee.loadAt(*row.Value)
				row.Load = &load
			}
			c.Rows = append(c.Rows, row)
		}
	}
	for i := range r.Cases { // by value, then by policy
		c := &r.Cases[i]
		c.addWarnings()
		slices.SortStableFunc(c.Rows, func(a, b PolicyRow) int {
			if a.Value == nil || b.Value == nil {
				return 0
			}
			return cmp.Compare(*a.Value, *b.Value)
		})
	}
}

func makeRow(seeds []*runJob) PolicyRow {
	row := PolicyRow{Policy: seeds[0].policy, Value: seeds[0].value, Seeds: len(seeds), Figures: map[string]SeedSpread{}}
	var ttft sim.Distribution
	for i := range metrics {
		row.Figures[metrics[i].name] = spreadOverSeeds(seeds, &metrics[i], func(o *runOutcome) map[string]seedFigure { return o.figures })
	}
	row.Tenants = partSpreads(seeds, func(o *runOutcome) map[string]map[string]seedFigure { return o.tenants })
	row.Regions = partSpreads(seeds, func(o *runOutcome) map[string]map[string]seedFigure { return o.regions })
	for _, j := range seeds {
		ttft.AddDistribution(&j.outcome.ttft)
		row.Sent += j.outcome.counts.Sent
		row.Answered += j.outcome.counts.Completed
		for code, n := range j.outcome.counts.Reasons {
			if row.Refusals == nil {
				row.Refusals = map[string]int64{}
			}
			row.Refusals[code] += n
		}
		row.earlyEnd = cmp.Or(row.earlyEnd, j.outcome.earlyEnd)
	}
	row.Limit = medianJob(seeds, func(j *runJob) seedFigure { return j.outcome.figures["attainment"] }).outcome.limit
	row.TTFT = thinCurve(&ttft, ratioOrZero(float64(row.Answered), float64(row.Sent)))
	row.WorkerBusy = seeds[0].outcome.workerBusy[:min(len(seeds[0].outcome.workerBusy), 200)]
	return row
}

// medianJob is the seed whose figure, of which more is better, is the median: texts next to medians then match it. A
// seed without a figure is worse than any with one.
func medianJob(seeds []*runJob, of func(*runJob) seedFigure) *runJob {
	rank := func(j *runJob) float64 {
		if s := of(j); s.missing == "" {
			return s.value
		}
		return math.Inf(-1)
	}
	sorted := slices.Clone(seeds)
	slices.SortStableFunc(sorted, func(a, b *runJob) int { return cmp.Compare(rank(a), rank(b)) })
	return sorted[len(sorted)/2]
}

func spreadOverSeeds(seeds []*runJob, m *metric, figures func(*runOutcome) map[string]seedFigure) SeedSpread {
	var list []seedFigure
	for _, j := range seeds {
		list = append(list, figures(j.outcome)[m.name])
	}
	return summarizeSeeds(list, m.lowerIsBetter)
}

func partSpreads(seeds []*runJob, parts func(*runOutcome) map[string]map[string]seedFigure) map[string]map[string]SeedSpread {
	if len(parts(seeds[0].outcome)) == 0 {
		return nil
	}
	out := map[string]map[string]SeedSpread{}
	for name := range parts(seeds[0].outcome) {
		figures := map[string]SeedSpread{}
		for i := range metrics {
			if metrics[i].ofPart != nil {
				figures[metrics[i].name] = spreadOverSeeds(seeds, &metrics[i], func(o *runOutcome) map[string]seedFigure { return parts(o)[name] })
			}
		}
		out[name] = figures
	}
	return out
}

// curvePoints is the number of points of a distribution that are kept.
const curvePoints = 120

// thinCurve reduces a cumulative distribution, scaled so that it ends at the fraction that was answered.
func thinCurve(d *sim.Distribution, answered float64) []Point {
	var out []Point
	last := -1.0
	d.WalkCumulative(func(v time.Duration, share float64) {
		if share-last >= 1.0/curvePoints || share >= 1 || len(out) == 0 {
			out = append(out, Point{v.Seconds(), share * answered})
			last = share
		}
	})
	return out
}

func makeCapacityRow(seeds []*runJob) CapacityRow {
	row := CapacityRow{Policy: seeds[0].policy, Seeds: len(seeds)}
	var bars []float64
	var list []seedFigure
	for _, j := range seeds {
		list = append(list, j.searched.seedFigure)
		if j.searched.required > 0 {
			bars = append(bars, j.searched.required)
		}
		row.Probes = append(row.Probes, j.searched.probes...)
		row.earlyEnd = cmp.Or(row.earlyEnd, j.searched.earlyEnd)
	}
	row.SeedSpread = summarizeSeeds(list, false)
	row.Limit = medianJob(seeds, func(j *runJob) seedFigure { return j.searched.seedFigure }).searched.limit
	if slices.Sort(bars); len(bars) > 0 {
		row.required = bars[len(bars)/2]
	}
	slices.SortStableFunc(row.Probes, func(a, b SearchProbe) int { return cmp.Compare(a.Value, b.Value) })
	return row
}

// loadValue is the load of this row.
func (r *PolicyRow) loadValue() float64 {
	if r.Load != nil {
		return *r.Load
	}
	return *r.Value
}
