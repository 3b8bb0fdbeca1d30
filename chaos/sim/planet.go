package sim

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/global"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/regional"
)

// gateway is one instance of a region's regional tier.
type gateway struct {
	at     int32 // in run.gateways
	region *region
	name   string
	lab    *regional.Lab
	teller teller
	down   bool
	deaths int // causes of its death that last
	lives  uint64
	spills []int64 // by peer region
	told   struct {
		news  uint64
		again int64
	}
}

// planet is the global tier, and the resolvers before it.
type planet struct {
	nodes    []*node
	agreed   agreed
	interval int64
	deaths   int
	reigns   *node // leads from a moment on, where elections take time
	from     int64
	elected  bool                // there was a leader
	answers  []map[int32]*answer // by region and resolver
}

// answer is what a resolver keeps.
type answer struct {
	region int32
	doors  []*gateway // of it, as the answer lists them
	until  int64
}

const (
	// agreeing is how long a plan takes to be agreed on and to be in force.
	agreeing = int64(100 * time.Millisecond)
	// serviceName is what clients resolve where the scenario's spec names nothing.
	serviceName = "chat.spillway.test."
)

// nowhere is the latitude of a region of which nobody said where it is, since a spec wants to know.
const nowhere = 0.01

// tiered says whether there is anything to choose above zones.
func (s *Scenario) tiered() bool {
	f := s.Fleet.Regions
	return s.Gateways || len(f) > 1 || len(f[0].Zones) > 1 || f[0].Gateways > 1 || f[0].Zones[0].Locals > 1
}

// declare makes the spec of a fleet above which there are gateways.
func (r *run) declare() error {
	r.spec = r.s.Spec
	if !r.s.tiered() || r.rival != noRival {
		return nil
	}
	if r.spec == nil {
		var err error
		if r.spec, err = spec.Decode("the scenario's own spec", []byte(r.specText())); err != nil {
			return fmt.Errorf("making a spec of the fleet: %w", err)
		}
	}
	for i := range r.s.Fleet.Regions {
		if r.spec.Region(r.s.Fleet.Regions[i].Name) == nil {
			return fmt.Errorf("the spec does not list the fleet's region %s: add it under regions, or leave the spec out", r.s.Fleet.Regions[i].Name)
		}
	}
	if len(r.spec.Regions) != len(r.s.Fleet.Regions) {
		return fmt.Errorf("the spec lists %d regions and the fleet has %d: list the same", len(r.spec.Regions), len(r.s.Fleet.Regions))
	}
	for _, t := range append([]string{r.tenant(0)}, r.s.Tenants...) {
		if r.spec.Tenant(t) == nil {
			return fmt.Errorf("the spec knows no tenant %s: declare it under tenants, or leave the spec out", t)
		}
	}
	return nil
}

// specText is the least spec that serves the fleet's models to everybody.
func (r *run) specText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "zone:\n  name: spillway.test.\n  nameservers: [{name: ns1.spillway.test., addresses: [192.0.2.1]}]\n")
	ttl := r.s.Steering.TTL
	if ttl == 0 {
		ttl = 30 * time.Second
	}
	fmt.Fprintf(&b, "services:\n  - {name: %s, ttl: %s}\nregions:\n", serviceName, ttl)
	for i := range r.s.Fleet.Regions {
		f := &r.s.Fleet.Regions[i]
		var zones []string
		for k := range f.Zones {
			zones = append(zones, f.Zones[k].Name)
		}
		if f.Lat == 0 && f.Lon == 0 {
			f.Lat = nowhere
		}
		var doors []string
		for k := range max(f.Gateways, 1) {
			host := fmt.Sprintf("10.%d.%d.%d", 2+k, i/250, i%250+1)
			doors = append(doors, fmt.Sprintf("{name: %s, addresses: [%q], url: \"http://%s:8080\"}", instance(f.Name+"-gw", k, f.Gateways), host, host))
		}
		fmt.Fprintf(&b, "  - {name: %s, place: {lat: %g, lon: %g}, zones: [%s], gateways: [%s]}\n",
			f.Name, f.Lat, f.Lon, strings.Join(zones, ", "), strings.Join(doors, ", "))
	}
	if r.s.Apart {
		b.WriteString("routing: {spill: false}\n")
	}
	b.WriteString("models:\n")
	for _, m := range r.served() {
		fmt.Fprintf(&b, "  - {name: %s}\n", m)
	}
	b.WriteString("tenants:\n")
	names := r.s.Tenants
	if len(names) == 0 {
		names = []string{spec.TenantAlone}
	}
	for _, t := range names {
		fmt.Fprintf(&b, "  - {name: %s, keys: [%q]}\n", t, spec.HashKey("sk-lab-"+t))
	}
	return b.String()
}

// newRegion puts gateways before a region's zones.
func (r *run) newRegion(reg *region) {
	n := r.s.Fleet.Regions[reg.at].Gateways
	declared := r.spec.Region(reg.name).Gateways
	for i := range max(n, 1) {
		g := &gateway{at: int32(len(r.gateways)), region: reg, name: instance(reg.name+"-gw", i, n), spills: make([]int64, len(r.s.Fleet.Regions))}
		if i < len(declared) {
			g.name = declared[i].Name
			for _, a := range declared[i].Addresses {
				r.doors[a.Unmap()] = g
			}
		}
		reg.gateways, r.gateways = append(reg.gateways, g), append(r.gateways, g)
		g.teller = teller{path: capacity.Path{Region: reg.name, Instance: g.name}, endpoint: g.name}
		r.peers[g.name] = g
		r.found(g)
	}
	for _, z := range reg.zones {
		for _, a := range z.agents {
			r.ends[a.name] = a
			r.agenda.add(event{kind: evTell, who: a.at})
			if a.kin != nil {
				r.agenda.add(event{at: int64(divideEvery), kind: evDivide, who: a.at, what: 0})
			}
		}
	}
	for _, g := range reg.gateways {
		r.agenda.add(event{at: int64(regional.ViewEvery), kind: evLook, who: g.at})
		r.agenda.add(event{at: 1, kind: evReport, who: g.at})
	}
}

// found starts a gateway, which knows nothing yet but the spec.
func (r *run) found(g *gateway) {
	g.lives++
	seat := g.lives<<48 | seedGateways<<32
	if g.lives == 1 {
		seat = seedGateways << 32
	}
	g.lab = regional.NewLab(regional.LabConfig{
		Name: g.name, Region: g.region.name, Spec: r.spec, Alone: !r.s.Steering.On && len(r.s.Fleet.Regions) == 1, Boot: g.lives,
		Seed: rand.New(rand.NewPCG(r.s.Seed, seat|uint64(g.at))).Uint64(),
	}, r.time(r.now))
	g.teller.last, g.teller.boot = nil, g.lives
	for _, o := range r.regions { // its probes have measured at once
		if o != g.region && r.planet != nil {
			g.lab.Measured(o.name, time.Duration(r.rtt(g.region, o)), r.time(r.now))
		}
	}
}

// newPlanet puts the global tier above the gateways.
func (r *run) newPlanet() {
	if len(r.regions) < 2 {
		return
	}
	p := &planet{interval: int64(r.spec.Steering.Interval)}
	if p.interval <= 0 {
		p.interval = int64(time.Second)
	}
	for range r.regions {
		p.answers = append(p.answers, map[int32]*answer{})
	}
	r.planet, p.nodes = p, r.newNodes()
	r.agenda.add(event{at: int64(global.LookEvery), kind: evView})
	r.agenda.add(event{at: int64(global.TellEvery), kind: evDirect})
	r.agenda.add(event{at: int64(global.TestifyEvery), kind: evTestify})
	r.agenda.add(event{at: p.interval, kind: evPlan})
	for _, g := range r.gateways {
		for _, o := range r.regions {
			if o != g.region {
				g.lab.Measured(o.name, time.Duration(r.rtt(g.region, o)), r.time(0))
			}
		}
	}
}

// tell has an instance of a zone state its capacity to its region's gateways.
func (r *run) tell(a *agent) {
	if a.down {
		r.agenda.add(event{at: r.now + tellEvery, kind: evTell, who: a.at})
		return
	}
	said, next := a.teller.state(a.lab.Summary(r.time(r.now)), r.now)
	r.agenda.add(event{at: next, kind: evTell, who: a.at})
	for _, g := range a.zone.region.gateways {
		r.agenda.add(event{at: r.now + r.inside(), kind: evHear, who: g.at, what: said})
		if a.kin != nil && !g.down {
			a.kin.Heard(g.name, r.time(r.now))
		}
	}
}

func (r *run) hear(g *gateway, s *capacity.Summary) {
	if !g.down {
		g.lab.Hear(s, r.time(r.now))
		r.command(g)
	}
}

// glance makes a gateway's view anew: silence turns into loss by the clock.
func (r *run) glance(g *gateway) {
	r.agenda.add(event{at: r.now + int64(regional.ViewEvery), kind: evLook, who: g.at})
	if !g.down {
		g.lab.Look(r.time(r.now))
		r.command(g)
	}
}

// report has a gateway state its region's capacity to the global tier.
func (r *run) report(g *gateway) {
	if r.planet == nil {
		return
	}
	if g.down {
		r.agenda.add(event{at: r.now + tellEvery, kind: evReport, who: g.at})
		return
	}
	said, next := g.teller.state(g.lab.Summary(r.time(r.now)), r.now)
	r.agenda.add(event{at: next, kind: evReport, who: g.at})
	for _, n := range r.planet.nodes {
		if !r.reaches(g.region, n) {
			continue
		}
		if late, ok := r.wan(g.region, n.region); ok {
			r.agenda.add(event{at: r.now + late, kind: evHeard, who: n.at, what: said})
		}
	}
}

func (r *run) heard(n *node, s *capacity.Summary) {
	if r.planet.up(n) {
		n.lab.Hear(s, r.time(r.now))
	}
}

func (r *run) direct() {
	p := r.planet
	r.agenda.add(event{at: r.now + int64(global.TellEvery), kind: evDirect})
	for _, n := range p.nodes {
		for _, g := range r.gateways {
			if !r.reaches(g.region, n) {
				continue
			}
			if late, ok := r.wan(g.region, n.region); ok {
				r.agenda.add(event{at: r.now + late, kind: evObey, who: g.at, what: n.lab.Directive(g.region.name, r.time(r.now))})
			}
		}
	}
}

func (r *run) obey(g *gateway, d *uplink.Directive) {
	if !g.down {
		g.lab.Obey(d, r.spec, r.time(r.now))
		r.command(g)
	}
}

func (r *run) view() {
	r.agenda.add(event{at: r.now + int64(global.LookEvery), kind: evView})
	now := r.time(r.now)
	r.spread(now)
	for _, n := range r.planet.nodes {
		if r.planet.up(n) {
			n.lab.Look(now)
		}
	}
}

// resolve is the gateway that a client goes to: one of its own region, or of what its resolver has been told. fresh passes the
// resolver's cache by.
func (r *run) resolve(x *ride, fresh bool) *gateway {
	q := x.req
	own := r.clientOf(q)
	turn := mix(q.Session) + uint64(x.tries)
	door := func(list []*gateway) *gateway { return list[turn%uint64(len(list))] }
	p := r.planet
	if p == nil || !r.s.Steering.On {
		return door(own.gateways)
	}
	n := int32(mix(q.Session) % uint64(r.s.Steering.resolvers()))
	kept := p.answers[own.at][n]
	if kept != nil && r.now < kept.until && !fresh {
		return door(kept.doors)
	}
	asked := r.nearestNode(own)
	if asked == nil { // no answer: what is known goes on, for want of better
		if kept != nil {
			return door(kept.doors)
		}
		return door(own.gateways)
	}
	r.out.Queries++
	to, ttl := asked.lab.Answer(0, own.place, resolverAddr(own.at, n))
	at := r.byName(to)
	if at < 0 {
		return door(own.gateways)
	}
	if kept == nil {
		kept = &answer{}
		p.answers[own.at][n] = kept
	}
	kept.region, kept.until = at, r.now+int64(ttl)
	kept.doors = kept.doors[:0]
	for _, a := range asked.lab.Addresses(to) {
		if g := r.doors[a.Unmap()]; g != nil {
			kept.doors = append(kept.doors, g)
		}
	}
	if len(kept.doors) == 0 {
		kept.doors = append(kept.doors, r.regions[at].gateways...)
	}
	return door(kept.doors)
}

// byName is the fleet's place of a region of the spec.
func (r *run) byName(inSpec int) int32 {
	if inSpec < 0 {
		return -1
	}
	name := r.spec.Regions[inSpec].Name
	for i, reg := range r.regions {
		if reg.name == name {
			return int32(i)
		}
	}
	return -1
}

// resolverAddr is an address of a resolver of a region: each has a network of its own.
func resolverAddr(region, n int32) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(20 + region%200), byte(n >> 8), byte(n), 7})
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
