package steer

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// ReportBounds limits what a region's report may claim, in level and in rate of rise, so that a hostile or faulty
// gateway can attract few clients of other regions. A report may lower a region's figures freely; what it raises is
// checked against the spec, the other regions and the region's earlier reports.
//
// Capacity of a model in a region is bounded by regions[].max_workers, by the rate that other regions learned for the
// same hardware, and by the rise limit: it may double every capacityDoublingTime, up to the largest other region's
// capacity or maxRiseFactor times its own mean of the last hour. These two allowances let honest growth count at
// once: a restart, a scale-up, and a region that grows to the size of another.
//
// Demand of a cell is bounded by what a region can observe of it: in proportion to the part of the cell that the plan
// sends to the region, and to what the other regions report of the rest. Demand beyond that is counted where it
// arrived and is not steered: it fills the capacity of its own region and of no other.
//
// The zero ReportBounds is ready. It belongs to one goroutine.
type ReportBounds struct {
	regions    []string
	startedAt  time.Time
	observedAt time.Time
	levels     map[levelKey]*capacityLevel
	evidence   map[cellDemandKey]*cellEvidence
}

// Limits of what is counted. Each is a factor or a time.
const (
	// maxRateOutlier bounds a region's rate per worker, as a multiple of the median of the other regions with the
	// same hardware. It is large because workers of one GPU type differ in their number of GPUs.
	maxRateOutlier = 10
	// capacityDoublingTime is the time in which a region's capacity may double.
	capacityDoublingTime = 30 * time.Second
	// maxRiseFactor bounds a region's capacity without max_workers, as a multiple of its mean over capacityMeanTime.
	maxRiseFactor    = 8
	capacityMeanTime = time.Hour
	// unboundedStartTime is how long after its start a ReportBounds accepts any capacity, and demand up to
	// maxDemandFactor: it has too few reports to compare with.
	unboundedStartTime = time.Minute
	// levelForgetTime is the time constant with which a capacity that is no longer reported decays.
	levelForgetTime = time.Hour
	// maxDemandFactor bounds the demand that one region may report for a model, as a multiple of the model's largest
	// capacity in any region. A surge counts together with its refused and retried requests.
	maxDemandFactor = 3
	// unprovenDemandShare is the fraction of that largest capacity up to which demand counts without evidence.
	unprovenDemandShare = 0.05
	// A region may report of a cell evidenceFactor times its part by the plan, plus strayShare of the whole cell for
	// clients that keep an old answer or whose resolver is elsewhere.
	evidenceFactor = 1.25
	strayShare     = 0.1
	// dominantShare is the part by the plan from which a region's report of a cell needs no evidence: no other region
	// observes enough.
	dominantShare = 0.9
	// pinnedShare is the part that is assumed for a region with pinned networks of the cell.
	pinnedShare = 0.85
	// shareDecayTime is the time constant with which a part by the plan falls, at least shareDecayTTLs times the TTL
	// of the service. It must not fall faster than clients leave: otherwise the other regions would observe less of a
	// cell than the part implies.
	shareDecayTime = 90 * time.Second
	shareDecayTTLs = 3
	// evidenceTime is the time constant with which a region's report of a cell decays as evidence.
	evidenceTime = time.Minute
	// maxEvidenceEntries bounds the stored evidence, in flows times regions, and maxLevels the stored capacities.
	maxEvidenceEntries = 1 << 22
	maxLevels          = 1 << 16
)

// Excess is a reported figure and the part of it that was counted.
type Excess struct {
	Region   string
	Model    string
	Kind     string  // KindCapacity or KindDemand
	Reported float64 // tokens/s
	Counted  float64 // tokens/s
	// Implausible marks an excess that no honest fleet reports: clients of the region alone do not explain it.
	Implausible bool
}

// Values of Excess.Kind.
const (
	KindCapacity = "capacity"
	KindDemand   = "demand"
)

type levelKey struct {
	region int
	model  string
}

// capacityLevel is the observed capacity of a model in a region, in tokens/s.
type capacityLevel struct {
	peak, mean float64
}

type cellDemandKey struct{ service, model, cell string }

// cellEvidence is what each region reports of one cell's demand, by region.
type cellEvidence struct {
	reported  []float64 // tokens/s, recent maximum
	shares    []float64 // 0..1, the part by the plan; a fall is delayed as clients leave
	updatedAt time.Time
}

// BoundInput lowers the input to what is counted and returns the excess, ordered by region, model and kind. It must
// process every input before anything else reads it.
func (b *ReportBounds) BoundInput(in *PlanInput, now time.Time) []Excess {
	b.resetOnRegionChange(in, now)
	out := b.boundCapacity(in, now)
	out = append(out, b.boundDemand(in, now)...)
	b.observedAt = now
	slices.SortStableFunc(out, func(x, y Excess) int {
		return cmp.Or(cmp.Compare(x.Region, y.Region), cmp.Compare(x.Model, y.Model), cmp.Compare(x.Kind, y.Kind))
	})
	return out
}

// ObserveReports records reports without bounding demand. It may change the capacity in the input. A node that is not
// the leader calls it, so that it has a history of every region when it becomes leader: with a single report for
// comparison, the noise of that report would bound honest demand.
func (b *ReportBounds) ObserveReports(in *PlanInput, now time.Time) {
	b.resetOnRegionChange(in, now)
	b.boundCapacity(in, now)
	b.updateEvidence(in, now)
	b.observedAt = now
}

// resetOnRegionChange discards the history when the list of regions has changed.
func (b *ReportBounds) resetOnRegionChange(in *PlanInput, now time.Time) {
	names := make([]string, len(in.Spec.Regions))
	for r := range names {
		names[r] = in.Spec.Regions[r].Name
	}
	if b.levels != nil && slices.Equal(names, b.regions) {
		return
	}
	old, was := b.levels, b.regions
	if b.startedAt.IsZero() {
		b.startedAt, b.observedAt = now, now
	}
	b.regions, b.levels, b.evidence = names, map[levelKey]*capacityLevel{}, map[cellDemandKey]*cellEvidence{}
	for k, l := range old {
		if r := slices.Index(names, was[k.region]); r >= 0 {
			b.levels[levelKey{r, k.model}] = l
		}
	}
}

// potentialRate is the rate of the model's ready and warm workers, in tokens/s. typical is the rate of one worker in
// other regions.
func (m *ModelCapacity) potentialRate(typical float64) float64 {
	per := typical
	if m.Ready > 0 && m.Rate > 0 {
		per = m.Rate / m.Ready
	}
	return m.Rate + per*m.Warm
}

// scaleCapacity scales the model's workers and their rate.
func (m *ModelCapacity) scaleCapacity(f float64) {
	m.Rate, m.Ready, m.Warm, m.Cold, m.Total = m.Rate*f, m.Ready*f, m.Warm*f, m.Cold*f, m.Total*f
}

func (b *ReportBounds) boundCapacity(in *PlanInput, now time.Time) (out []Excess) {
	n := min(len(in.Regions), len(in.Spec.Regions))
	reported := map[levelKey]float64{}
	typical := medianWorkerRates(in)
	for r := range n {
		for i := range in.Regions[r].Models {
			m := &in.Regions[r].Models[i]
			m.Rate, m.Ready, m.Warm, m.Cold, m.Total = clampAmount(m.Rate), clampAmount(m.Ready), clampAmount(m.Warm), clampAmount(m.Cold), clampAmount(m.Total)
			for k := range m.Hardware {
				m.Hardware[k].Ready, m.Hardware[k].Rate = clampAmount(m.Hardware[k].Ready), clampAmount(m.Hardware[k].Rate)
			}
			reported[levelKey{r, m.Name}] = m.potentialRate(typical[m.Name])
		}
	}
	rates := collectHardwareRates(in)
	for r := range n {
		for i := range in.Regions[r].Models {
			m := &in.Regions[r].Models[i]
			m.Rate *= plausibleRateShare(m, r, rates)
			if most := float64(in.Spec.Regions[r].MaxWorkers); most > 0 && m.Ready+m.Warm > most {
				m.scaleCapacity(most / (m.Ready + m.Warm))
			}
		}
	}
	typical = medianWorkerRates(in)
	for r := range n {
		for i := range in.Regions[r].Models {
			m := &in.Regions[r].Models[i]
			has := m.potentialRate(typical[m.Name])
			most := b.maxCapacity(in, r, m.Name, now)
			if has > most {
				m.scaleCapacity(most / has)
				has = most
			}
			if t := reported[levelKey{r, m.Name}]; t > has*1.001 {
				out = append(out, Excess{Region: in.Spec.Regions[r].Name, Model: m.Name, Kind: KindCapacity, Reported: t, Counted: has, Implausible: true})
			}
		}
	}
	b.recordLevels(in, typical, now)
	return out
}

// maxCapacity is the bound of the region's capacity for the model now, in tokens/s.
func (b *ReportBounds) maxCapacity(in *PlanInput, r int, model string, now time.Time) float64 {
	if now.Sub(b.startedAt) < unboundedStartTime {
		return math.Inf(1)
	}
	others := 0.0
	for k, l := range b.levels {
		if k.model == model && k.region != r {
			others = math.Max(others, l.peak)
		}
	}
	l := b.levels[levelKey{r, model}]
	if l == nil || l.peak <= 0 {
		if others == 0 {
			return math.Inf(1)
		}
		return others
	}
	rise := l.peak * math.Exp2(now.Sub(b.observedAt).Seconds()/capacityDoublingTime.Seconds())
	if in.Spec.Regions[r].MaxWorkers == 0 {
		rise = math.Min(rise, math.Max(l.peak, maxRiseFactor*l.mean))
	}
	return math.Max(rise, others)
}

// recordLevels stores the counted capacity.
func (b *ReportBounds) recordLevels(in *PlanInput, typical map[string]float64, now time.Time) {
	dt := now.Sub(b.observedAt)
	seen := map[levelKey]bool{}
	for r := range min(len(in.Regions), len(in.Spec.Regions)) {
		for i := range in.Regions[r].Models {
			m := &in.Regions[r].Models[i]
			seen[levelKey{r, m.Name}] = true
			has, key := m.potentialRate(typical[m.Name]), levelKey{r, m.Name}
			l := b.levels[key]
			switch {
			case l == nil && has > 0:
				b.levels[key] = &capacityLevel{has, has}
			case l != nil && now.Sub(b.startedAt) < unboundedStartTime:
				l.peak, l.mean = math.Max(l.peak, has), math.Max(l.mean, has)
			case l != nil:
				l.peak = math.Max(has, l.peak*decayFactor(dt, levelForgetTime))
				if has > 0 { // a region without reports keeps its mean
					l.mean += (1 - decayFactor(dt, capacityMeanTime)) * (has - l.mean)
				}
			}
		}
	}
	for key, l := range b.levels {
		if l.peak < 1e-3 || !seen[key] && len(b.levels) > maxLevels {
			delete(b.levels, key)
		}
	}
}

func decayFactor(dt, constant time.Duration) float64 {
	return math.Exp(-max(dt, 0).Seconds() / constant.Seconds())
}

// medianWorkerRates is the median over regions of the rate per ready worker, by model, in tokens/s.
func medianWorkerRates(in *PlanInput) map[string]float64 {
	all := map[string][]float64{}
	for r := range in.Regions {
		for i := range in.Regions[r].Models {
			if m := &in.Regions[r].Models[i]; m.Ready > 0 && m.Rate > 0 {
				all[m.Name] = append(all[m.Name], m.Rate/m.Ready)
			}
		}
	}
	out := make(map[string]float64, len(all))
	for name, list := range all {
		out[name] = lowerMedian(list)
	}
	return out
}

// lowerMedian is the lower of the two middle values of an even number.
func lowerMedian(list []float64) float64 {
	slices.Sort(list)
	return list[(len(list)-1)/2]
}

type hardwareKey struct{ model, name string }

type hardwareRate struct {
	region int
	rate   float64 // tokens/s of one worker
}

// collectHardwareRates lists the rate per worker by model and hardware, one entry per region.
func collectHardwareRates(in *PlanInput) map[hardwareKey][]hardwareRate {
	out := map[hardwareKey][]hardwareRate{}
	for r := range in.Regions {
		for i := range in.Regions[r].Models {
			m := &in.Regions[r].Models[i]
			for _, h := range m.Hardware {
				if h.Ready > 0 && h.Rate > 0 {
					k := hardwareKey{m.Name, h.Name}
					out[k] = append(out[k], hardwareRate{r, h.Rate / h.Ready})
				}
			}
		}
	}
	return out
}

// plausibleRateShare is the fraction of the model's rate that is plausible by other regions with the same hardware,
// at most 1.
func plausibleRateShare(m *ModelCapacity, r int, rates map[hardwareKey][]hardwareRate) float64 {
	reported, counted := 0.0, 0.0
	for _, h := range m.Hardware {
		if !(h.Ready > 0) || !(h.Rate > 0) {
			continue
		}
		var others []float64
		for _, x := range rates[hardwareKey{m.Name, h.Name}] {
			if x.region != r {
				others = append(others, x.rate)
			}
		}
		rate := h.Rate
		if len(others) > 0 {
			rate = math.Min(rate, maxRateOutlier*lowerMedian(others)*h.Ready)
		}
		reported, counted = reported+h.Rate, counted+rate
	}
	if reported == 0 {
		return 1
	}
	return counted / reported
}
