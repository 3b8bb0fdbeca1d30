package steer

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Bounds limits what a region's report may claim, in level and in rate of rise, so that one gateway that is hostile or
// wrong moves few clients that are not its own. A report may lower what a region has and gets; what it raises is checked
// against the spec, against the other regions and against what the region has reported before.
//
// Capacity of a model in a region is bounded by regions[].max_workers, by the rate that other regions learned for the
// same hardware, and by the rise limit: it may double every riseTime, up to the largest other region's capacity or
// riseMost times its own mean of the last hour. Both exceptions keep honest growth unhindered: a restart, a scale-up and
// a region that grows to the size of another.
//
// Demand of a cell is bounded by what a region can see of it: in proportion to the part of the cell that the plan sends
// to the region, and to what the other regions see of the rest. Demand beyond that is counted where it arrived and is
// not steered: it fills the capacity of its own region and of no other.
//
// The zero Bounds is ready. It belongs to one goroutine.
type Bounds struct {
	regions  []string
	begun    time.Time
	last     time.Time
	capacity map[levelKey]*level
	flows    map[flowKey]*sight
}

// The limits of what is counted. Each is a factor or a time.
const (
	// outlier is how many times the median rate per worker of the other regions with the same hardware a region's may be.
	// Workers of one GPU type differ by the number of GPUs in each.
	outlier = 10
	// riseTime is in what time a region's capacity may double.
	riseTime = 30 * time.Second
	// riseMost is how many times its mean over meanTime a region's capacity may become without max_workers.
	riseMost = 8
	meanTime = time.Hour
	// firstFor is how long after its start a Bounds takes capacity as it is reported: it has nothing to compare with.
	firstFor = time.Minute
	// seenFor is the time constant in which a capacity that is no longer reported is forgotten.
	seenFor = time.Hour
	// demandMost is how many times the largest capacity of a model in any region one region may report as demand. A
	// crowd is counted with what is refused and retried.
	demandMost = 3
	// slack is the part of that largest capacity up to which a region's demand is counted without evidence.
	slack = 0.05
	// evident and astray are what a region may report of a cell: evident times its part by the plan, and astray of the
	// whole besides, for clients that keep an old answer or whose resolver is elsewhere.
	evident = 1.25
	astray  = 0.1
	// home is the part by the plan from which a region's report of a cell needs no evidence: no other region sees enough.
	home = 0.9
	// pinnedPart is the part that is assumed of a region that has a cell's heavy networks.
	pinnedPart = 0.85
	// followTime is the time constant in which a part by the plan falls. It is at least followTTLs times the TTL of the
	// service, so that the part falls no faster than clients leave, and what the other regions see of a cell is never
	// less than what the part says.
	followTime = 90 * time.Second
	followTTLs = 3
	// sightTime is the time constant in which a region's report of a cell stops counting as evidence.
	sightTime = time.Minute
	// maxSights bounds the flows that are remembered, in flows times regions, and maxLevels the capacities.
	maxSights = 1 << 22
	maxLevels = 1 << 16
)

// Excess is what a region reported and what of it was counted.
type Excess struct {
	Region string
	Model  string
	Kind   string  // KindCapacity or KindDemand
	Told   float64 // tokens/s
	Count  float64 // tokens/s
	// Odd marks an excess that no honest fleet shows: clients of the region alone do not explain it.
	Odd bool
}

// The kinds of Excess.
const (
	KindCapacity = "capacity"
	KindDemand   = "demand"
)

type levelKey struct {
	region int
	model  string
}

// level is what a region was seen to have of a model, in tokens/s.
type level struct {
	top, mean float64
}

type flowKey struct{ service, model, cell string }

// sight is what the regions see of one cell's demand, by region.
type sight struct {
	told []float64 // tokens/s, the greatest of late
	part []float64 // 0..1, the part by the plan; where it falls, it follows as clients do
	at   time.Time
}

// Observe lowers the Input to what is counted and returns what was over it, in order of region, model and kind. It is
// called with every Input before anything else reads it.
func (b *Bounds) Observe(in *Input, now time.Time) []Excess {
	b.begin(in, now)
	out := b.boundCapacity(in, now)
	out = append(out, b.boundDemand(in, now)...)
	b.last = now
	slices.SortStableFunc(out, func(x, y Excess) int {
		return cmp.Or(cmp.Compare(x.Region, y.Region), cmp.Compare(x.Model, y.Model), cmp.Compare(x.Kind, y.Kind))
	})
	return out
}

// Watch notes capacity as Observe does and leaves demand alone. A node that does not lead calls it, so that it has seen
// what every region has when it begins to lead.
func (b *Bounds) Watch(in *Input, now time.Time) {
	b.begin(in, now)
	b.boundCapacity(in, now)
	b.last = now
}

// begin forgets everything when the regions have changed places.
func (b *Bounds) begin(in *Input, now time.Time) {
	names := make([]string, len(in.Spec.Regions))
	for r := range names {
		names[r] = in.Spec.Regions[r].Name
	}
	if b.capacity != nil && slices.Equal(names, b.regions) {
		return
	}
	old, was := b.capacity, b.regions
	if b.begun.IsZero() {
		b.begun, b.last = now, now
	}
	b.regions, b.capacity, b.flows = names, map[levelKey]*level{}, map[flowKey]*sight{}
	for k, l := range old {
		if r := slices.Index(names, was[k.region]); r >= 0 {
			b.capacity[levelKey{r, k.model}] = l
		}
	}
}

// potential is what the model's ready and warm workers do, in tokens/s. typical is the rate of a worker elsewhere.
func (m *Model) potential(typical float64) float64 {
	per := typical
	if m.Ready > 0 && m.Rate > 0 {
		per = m.Rate / m.Ready
	}
	return m.Rate + per*m.Warm
}

// scale reduces the model's workers and their rate alike.
func (m *Model) scale(f float64) {
	m.Rate, m.Ready, m.Warm, m.Cold, m.Total = m.Rate*f, m.Ready*f, m.Warm*f, m.Cold*f, m.Total*f
}

func (b *Bounds) boundCapacity(in *Input, now time.Time) (out []Excess) {
	n := min(len(in.Regions), len(in.Spec.Regions))
	told := map[levelKey]float64{}
	typical := typicalRates(in)
	for r := range n {
		for i := range in.Regions[r].Models {
			m := &in.Regions[r].Models[i]
			m.Rate, m.Ready, m.Warm, m.Cold, m.Total = amount(m.Rate), amount(m.Ready), amount(m.Warm), amount(m.Cold), amount(m.Total)
			for k := range m.Hardware {
				m.Hardware[k].Ready, m.Hardware[k].Rate = amount(m.Hardware[k].Ready), amount(m.Hardware[k].Rate)
			}
			told[levelKey{r, m.Name}] = m.potential(typical[m.Name])
		}
	}
	rates := hardwareRates(in)
	for r := range n {
		for i := range in.Regions[r].Models {
			m := &in.Regions[r].Models[i]
			m.Rate *= hardwareFactor(m, r, rates)
			if most := float64(in.Spec.Regions[r].MaxWorkers); most > 0 && m.Ready+m.Warm > most {
				m.scale(most / (m.Ready + m.Warm))
			}
		}
	}
	typical = typicalRates(in)
	for r := range n {
		for i := range in.Regions[r].Models {
			m := &in.Regions[r].Models[i]
			has := m.potential(typical[m.Name])
			most := b.mostCapacity(in, r, m.Name, now)
			if has > most {
				m.scale(most / has)
				has = most
			}
			if t := told[levelKey{r, m.Name}]; t > has*1.001 {
				out = append(out, Excess{Region: in.Spec.Regions[r].Name, Model: m.Name, Kind: KindCapacity, Told: t, Count: has, Odd: true})
			}
		}
	}
	b.note(in, typical, now)
	return out
}

// mostCapacity is what the region may have of the model now, in tokens/s.
func (b *Bounds) mostCapacity(in *Input, r int, model string, now time.Time) float64 {
	if now.Sub(b.begun) < firstFor {
		return math.Inf(1)
	}
	others := 0.0
	for k, l := range b.capacity {
		if k.model == model && k.region != r {
			others = math.Max(others, l.top)
		}
	}
	l := b.capacity[levelKey{r, model}]
	if l == nil || l.top <= 0 {
		if others == 0 {
			return math.Inf(1)
		}
		return others
	}
	rise := l.top * math.Exp2(now.Sub(b.last).Seconds()/riseTime.Seconds())
	if in.Spec.Regions[r].MaxWorkers == 0 {
		rise = math.Min(rise, math.Max(l.top, riseMost*l.mean))
	}
	return math.Max(rise, others)
}

// note remembers what is counted now.
func (b *Bounds) note(in *Input, typical map[string]float64, now time.Time) {
	dt := now.Sub(b.last)
	seen := map[levelKey]bool{}
	for r := range min(len(in.Regions), len(in.Spec.Regions)) {
		for i := range in.Regions[r].Models {
			m := &in.Regions[r].Models[i]
			seen[levelKey{r, m.Name}] = true
			has, key := m.potential(typical[m.Name]), levelKey{r, m.Name}
			l := b.capacity[key]
			switch {
			case l == nil && has > 0:
				b.capacity[key] = &level{has, has}
			case l != nil && now.Sub(b.begun) < firstFor:
				l.top, l.mean = math.Max(l.top, has), math.Max(l.mean, has)
			case l != nil:
				l.top = math.Max(has, l.top*decay(dt, seenFor))
				if has > 0 { // a region that is away keeps its mean
					l.mean += (1 - decay(dt, meanTime)) * (has - l.mean)
				}
			}
		}
	}
	for key, l := range b.capacity {
		if l.top < 1e-3 || !seen[key] && len(b.capacity) > maxLevels {
			delete(b.capacity, key)
		}
	}
}

func decay(dt, constant time.Duration) float64 {
	return math.Exp(-max(dt, 0).Seconds() / constant.Seconds())
}

// typicalRates is the median rate per ready worker of each model, in tokens/s.
func typicalRates(in *Input) map[string]float64 {
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
		out[name] = median(list)
	}
	return out
}

// median is the lower one of two.
func median(list []float64) float64 {
	slices.Sort(list)
	return list[(len(list)-1)/2]
}

type hardwareKey struct{ model, name string }

type hardwareRate struct {
	region int
	rate   float64 // tokens/s of one worker
}

// hardwareRates lists the rate per worker of each model on each hardware, by region.
func hardwareRates(in *Input) map[hardwareKey][]hardwareRate {
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

// hardwareFactor is the part of the model's rate that other regions with the same hardware make likely, at most 1.
func hardwareFactor(m *Model, r int, rates map[hardwareKey][]hardwareRate) float64 {
	told, counted := 0.0, 0.0
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
			rate = math.Min(rate, outlier*median(others)*h.Ready)
		}
		told, counted = told+h.Rate, counted+rate
	}
	if told == 0 {
		return 1
	}
	return counted / told
}
