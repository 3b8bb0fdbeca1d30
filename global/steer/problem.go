package steer

import (
	"math"
	"slices"

	"github.com/spillway-lb/spillway/internal/spec"
)

// missing is what a client pays for each part of its demand that a region has no worker for: a hop to a peer.
const missing = 0.15 // seconds

// problem is an Input laid out for solving: regions by index, models by index, one unit for each (service, cell).
type problem struct {
	in      *Input
	models  map[string]int
	names   map[string]int // regions
	cells   map[string]bool
	shops   [][]shop // region, model
	well    []bool
	allowed []Set
	serves  [][]bool // service, model
	bias    [][]float64
	units   []unit
	asks    [][]int32         // by model: the units that ask for it
	pilots  map[int][]float64 // shares of the services that fail over to pilot lights
}

// shop is what one region has of one model.
type shop struct {
	rate   float64 // tokens/s of ready workers
	able   float64 // tokens/s of ready and warm workers; 0: nobody can serve the model
	wait   float64 // seconds
	worker float64 // tokens/s of one worker
	cold   float64 // 0..1, part of the hot prefixes that its caches lack
	booked float64 // tokens/s taken by demand that has no choice
	segs   [4 + crowds]segment
}

// unit is the demand of one cell for one service. It may be split over regions but every part carries the same mix of
// models, because a DNS answer is given before anybody says which model they want.
type unit struct {
	svc   int
	cell  int // index in Input.Cells, -1 when its place is unknown
	need  []part
	total float64   // tokens/s, without the canary's part
	base  []float64 // seconds by region without wait, +Inf where it may not go
	cost  []float64 // seconds by region with wait and hops, +Inf where nothing serves it
	was   []float64 // 0..1 by region under the plan in force; nil when there is none, or nothing to compare
	share []float64 // 0..1 by region, what Solve decides
	kind  int32     // see Memory
	heavy []weighed // networks that ask for a good part of it
	row   *Row      // of the plan in force, in the spec's regions; nil: none
	fixed bool      // its region does not depend on what others ask for
}

type part struct {
	model int
	rate  float64
}

func newProblem(in *Input) *problem {
	p := &problem{in: in, models: map[string]int{}, names: map[string]int{}, cells: make(map[string]bool, len(in.Cells))}
	for i := range in.Cells {
		p.cells[in.Cells[i].Name] = true
	}
	for r := range in.Spec.Regions {
		if _, twice := p.names[in.Spec.Regions[r].Name]; !twice {
			p.names[in.Spec.Regions[r].Name] = r
		}
	}
	for _, m := range in.Spec.Models {
		p.modelIndex(m.Name)
	}
	for i := range in.Regions {
		for _, m := range in.Regions[i].Models {
			p.modelIndex(m.Name)
		}
	}
	p.layRegions()
	for i := range in.Spec.Services {
		svc := &in.Spec.Services[i]
		p.allowed = append(p.allowed, allowed(in.Spec, svc))
		p.serves = append(p.serves, p.servedBy(svc))
		bs := make([]float64, p.regions())
		for r := range bs {
			bs[r] = bias(in.Spec, svc, r)
		}
		p.bias = append(p.bias, bs)
	}
	p.layDemand()
	p.layHeavy()
	p.asks = make([][]int32, len(p.models))
	for i := range p.units {
		for _, n := range p.units[i].need {
			p.asks[n.model] = append(p.asks[n.model], int32(i))
		}
	}
	return p
}

// servedBy marks a service's models, those behind its aliases included. A service that lists none serves all.
func (p *problem) servedBy(svc *spec.Service) []bool {
	out := make([]bool, len(p.models))
	listed := make(map[string]bool, len(svc.Models))
	for _, name := range svc.Models {
		listed[name] = true
	}
	for name, m := range p.models {
		out[m] = len(svc.Models) == 0 || listed[name]
	}
	for i := range p.in.Spec.Aliases {
		a := &p.in.Spec.Aliases[i]
		if !listed[a.Name] {
			continue
		}
		for _, t := range a.Targets {
			if m, ok := p.models[t.Model]; ok {
				out[m] = true
			}
		}
	}
	return out
}

func (p *problem) modelIndex(name string) int {
	i, ok := p.models[name]
	if !ok {
		i = len(p.models)
		p.models[name] = i
	}
	return i
}

func (p *problem) regions() int { return min(len(p.in.Spec.Regions), MaxRegions) }

func (p *problem) region(name string) int {
	if r, ok := p.names[name]; ok && r < p.regions() {
		return r
	}
	return -1
}

func (p *problem) layRegions() {
	n := p.regions()
	p.shops, p.well = make([][]shop, n), make([]bool, n)
	typical := p.typical()
	for r := range n {
		p.shops[r] = make([]shop, len(p.models))
		if r >= len(p.in.Regions) {
			continue
		}
		st := &p.in.Regions[r]
		p.well[r] = !st.Drained && !st.Lost
		if st.Sick {
			continue // as if it had no worker
		}
		for i := range st.Models {
			k := p.models[st.Models[i].Name]
			p.shops[r][k] = newShop(&p.in.Spec.Regions[r], &st.Models[i], st.ramp(), typical[k])
		}
	}
}

// newShop prices a region's capacity for a model: its share in two segments, then workers that would first wake up, and
// last what is held back from steering. Cold workers, which need a load, are no capacity at all. typical is what a worker
// does where none of the region's own is ready to tell, in tokens/s.
func newShop(decl *spec.Region, m *Model, ramp, typical float64) shop {
	out := shop{
		rate: amount(m.Rate), wait: max(0, finite(m.Wait, maxSeconds)),
		cold: 1 - max(0, finite(m.Warmth, 1)),
	}
	if out.worker = out.rate / max(1, amount(m.Ready)); out.worker <= 0 {
		out.worker = typical
	}
	out.able = out.rate + out.worker*amount(m.Warm)
	left := math.Inf(1)
	if q, ok := decl.Quotas[m.Name]; ok {
		left = amount(q)
	}
	share := maxShare(decl)
	for i, s := range []segment{
		{out.rate * share * relaxed, 0},
		{out.rate * share * (1 - relaxed), priceBusy},
		{out.worker * amount(m.Warm) * share, waking(m.Wake)},
		{out.rate * (1 - share), priceReserve},
	} {
		s.room = min(s.room*ramp, left)
		left -= s.room
		out.segs[i] = s
	}
	out.crowd()
	return out
}

// crowd adds what the region takes beyond its capacity when there is no room anywhere.
func (s *shop) crowd() {
	all := 0.0
	for _, g := range s.segs[:4] {
		all += g.room
	}
	for i := range crowds {
		s.segs[4+i] = segment{all * (crowding - 1), priceReserve + priceCrowd*float64(1+i)}
		all *= crowding
	}
}

// ramp is the part of its capacity that the region takes, 0..1.
func (r *Region) ramp() float64 {
	if r.Ramp > 0 && r.Ramp < 1 {
		return r.Ramp
	}
	return 1
}

func maxShare(r *spec.Region) float64 {
	if r.MaxShare > 0 && r.MaxShare <= 1 {
		return r.MaxShare
	}
	return 0.85
}

// claim is one line of demand, by index.
type claim struct {
	svc, cell, model int
	rate             float64
}

// layDemand sums demand into units, in an order that does not depend on the order of arrival.
func (p *problem) layDemand() {
	claims := p.claims()
	for at := 0; at < len(claims); {
		end := at
		for end < len(claims) && claims[end].svc == claims[at].svc && claims[end].cell == claims[at].cell {
			end++
		}
		p.units = append(p.units, p.newUnit(claims[at:end]))
		at = end
	}
}

// claims is the demand that the spec's services steer, sorted; the rest is booked where it arrived.
func (p *problem) claims() []claim {
	cells := make(map[string]int, len(p.in.Cells))
	for i := range p.in.Cells {
		cells[p.in.Cells[i].Name] = i
	}
	services := make(map[string]int, len(p.in.Spec.Services))
	for i := range p.in.Spec.Services {
		services[p.in.Spec.Services[i].Name] = i
	}
	out := make([]claim, 0, len(p.in.Demand))
	for i := range p.in.Demand {
		d := &p.in.Demand[i]
		m, known := p.models[d.Model]
		rate := amount(d.Rate)
		if !known || rate == 0 {
			continue
		}
		c := claim{svc: -1, cell: -1, model: m, rate: rate}
		if svc, steered := services[d.Service]; steered {
			c.svc = svc
			if cell, ok := cells[d.Cell]; ok {
				c.cell = cell
			}
		} else if c.cell = p.region(d.Region); c.cell < 0 {
			continue
		}
		out = append(out, c)
	}
	slices.SortFunc(out, compareClaims)
	steered, _ := slices.BinarySearchFunc(out, 0, func(c claim, svc int) int { return c.svc - svc })
	for _, c := range out[:steered] { // such as clients of a bare address: they stay where they are
		p.shops[c.cell][c.model].booked += c.rate
	}
	return out[steered:]
}

func compareClaims(a, b claim) int {
	switch {
	case a.svc != b.svc:
		return a.svc - b.svc
	case a.cell != b.cell:
		return a.cell - b.cell
	case a.model != b.model:
		return a.model - b.model
	case a.rate < b.rate:
		return -1
	case a.rate > b.rate:
		return 1
	}
	return 0
}

func (p *problem) newUnit(claims []claim) unit {
	u := unit{svc: claims[0].svc, cell: claims[0].cell}
	svc := &p.in.Spec.Services[u.svc]
	keep := 1.0
	canary := p.canary(u.svc)
	if canary >= 0 {
		keep = 1 - svc.Canary.Share
	}
	for _, c := range claims {
		if canary >= 0 {
			p.shops[canary][c.model].booked += c.rate * svc.Canary.Share
		}
		if last := len(u.need) - 1; last >= 0 && u.need[last].model == c.model {
			u.need[last].rate += c.rate * keep
			continue
		}
		u.need = append(u.need, part{c.model, c.rate * keep})
	}
	for _, n := range u.need {
		u.total += n.rate
	}
	three := make([]float64, 3*p.regions())
	u.share, u.base, u.cost = three[:p.regions()], three[p.regions():2*p.regions()], three[2*p.regions():]
	for r := range u.cost {
		u.base[r] = p.base(&u, r)
		u.cost[r] = p.cost(&u, r)
	}
	return u
}

// canary is the region that takes a fixed part of a service's clients now; -1 for none.
func (p *problem) canary(svc int) int {
	c := &p.in.Spec.Services[svc].Canary
	r := p.region(c.Region)
	if !(c.Share > 0 && c.Share < 1) || r < 0 || !p.well[r] || !p.allowed[svc].Has(r) {
		return -1
	}
	return r
}

// open reports whether the service's own clients, those of the canary apart, may go to region r now.
func (p *problem) open(svc, r int) bool {
	return p.well[r] && p.allowed[svc].Has(r) && (p.in.Spec.Services[svc].Canary.Region != p.in.Spec.Regions[r].Name || p.alone(svc, r))
}

// alone reports whether no region but r may serve the service now, so that even a canary must.
func (p *problem) alone(svc, r int) bool {
	for i := range p.regions() {
		if i != r && p.well[i] && p.allowed[svc].Has(i) {
			return false
		}
	}
	return true
}

// base is what the unit pays in region r before any wait, in seconds: RTT as the operator bends it, and bias.
func (p *problem) base(u *unit, r int) float64 {
	if !p.open(u.svc, r) {
		return math.Inf(1)
	}
	c := p.bias[u.svc][r]
	if u.cell >= 0 {
		c += p.in.Cells[u.cell].rtt(r) * stretch(&p.in.Spec.Regions[r])
	}
	return c
}

// load is what a model's queue and cold caches cost in region r, in seconds.
func (p *problem) load(svc, r, m int) float64 {
	s := &p.shops[r][m]
	return s.wait + s.cold*p.seconds(p.in.Spec.Services[svc].PrefixTokens, s)
}

// seconds is how long one worker computes a prompt of so many tokens.
func (p *problem) seconds(tokens int, s *shop) float64 {
	if tokens <= 0 || s.worker <= 0 {
		return 0
	}
	return min(float64(tokens)/s.worker, maxSeconds)
}

// cost is what the unit pays in region r, in seconds: RTT, wait, bias, and a hop for models that are not there.
func (p *problem) cost(u *unit, r int) float64 {
	c := u.base[r]
	if math.IsInf(c, 1) {
		return c
	}
	served := 0.0
	for _, n := range u.need {
		if p.shops[r][n.model].able > 0 {
			served += n.rate
			c += p.load(u.svc, r, n.model) * n.rate / u.total
		}
	}
	if served == 0 {
		return math.Inf(1)
	}
	return c + missing*max(0, 1-served/u.total)
}

// hopeless reports whether no region can serve any of the unit.
func (u *unit) hopeless() bool {
	for _, c := range u.cost {
		if !math.IsInf(c, 1) {
			return false
		}
	}
	return true
}

// order is the failover order: the regions that the service lists, then the others as the spec lists them.
func order(s *spec.Spec, svc *spec.Service) []uint16 {
	var out []uint16
	var seen Set
	for _, name := range svc.Order {
		if r := regionIndex(s, name); r >= 0 && r < MaxRegions && !seen.Has(r) {
			seen.Add(r)
			out = append(out, uint16(r))
		}
	}
	for r := range min(len(s.Regions), MaxRegions) {
		if !seen.Has(r) {
			out = append(out, uint16(r))
		}
	}
	return out
}
