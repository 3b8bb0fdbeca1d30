package sim

import (
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local"
)

// strike breaks something, or mends it.
func (r *run) strike(i int32, on bool) {
	f := &r.s.Faults[i]
	r.broken[i] = on
	switch f.Kind {
	case GlobalDead, LeaderDead:
		r.topple(i, f.Kind, on)
	case Partition:
	case Drain:
		r.drained()
	case RegionDead:
		for _, reg := range r.regions {
			if reg.name != f.Region {
				continue
			}
			reg.deaths += step(on)
			reg.down = reg.deaths > 0
			for _, g := range reg.gateways {
				r.gatewayDown(g, on)
			}
			for _, z := range reg.zones {
				r.zoneDown(z, on, f.Store)
			}
		}
	case GatewayDead:
		for _, reg := range r.regions {
			if reg.name == f.Region && len(reg.gateways) > 0 {
				r.gatewayDown(reg.gateways[f.Instance], on)
			}
		}
	default:
		r.strikeZone(r.zoneNamed(f.Region, f.Zone), f, on)
	}
}

func (r *run) strikeZone(z *zone, f *Fault, on bool) {
	switch f.Kind {
	case ZoneDead:
		r.zoneDown(z, on, f.Store)
	case LocalDead:
		r.agentDown(z.agents[f.Instance], on)
	default:
		for k := range max(f.Workers, 1) {
			r.hit(z.workers[f.Worker+k], f, on)
		}
	}
}

// topple takes the node away that leads the global tier, or all of them, or brings back whom the fault took.
func (r *run) topple(i int32, k Kind, on bool) {
	p := r.planet
	switch {
	case p == nil:
	case k == GlobalDead:
		p.deaths += step(on)
	case on:
		if r.victims == nil {
			r.victims = map[int32]*node{}
		}
		if n := r.leader(); n != nil { // else there is nobody to hit
			n.deaths++
			r.victims[i] = n
		}
	case r.victims[i] != nil:
		r.victims[i].deaths--
	}
}

func (r *run) zoneNamed(region, zone string) *zone {
	for _, reg := range r.regions {
		for _, z := range reg.zones {
			if reg.name == region && z.name == zone {
				return z
			}
		}
	}
	return nil // check has seen that there is one
}

func (r *run) hit(w *worker, f *Fault, on bool) {
	switch f.Kind {
	case WorkerDead:
		if on {
			r.kill(w, true)
		} else {
			r.revive(w, f.Store)
		}
	case WorkerStalled:
		w.stalled += step(on)
		r.plan(w)
	case WorkerSlow:
		factor := 1.0
		if on {
			factor = f.Factor
		}
		w.engine.SetSlowdown(factor * max(w.slowdown, 0.01))
	}
}

// kill ends a worker's process, or starts it anew.
func (r *run) kill(w *worker, dead bool) {
	w.dead += step(dead)
	if !dead || w.dead > 1 {
		return
	}
	w.engine.Settle(r.time(r.now))
	for _, s := range w.engine.CancelAll() {
		x := s.Owner().(*ride)
		if !x.over && (x.push != nil || !x.agent.down) {
			r.lose(x, local.EndLost, openai.CodeUpstream)
		}
	}
	w.before = w.counters()
	w.engine.Restart()
	w.next = never
	for _, a := range w.zone.agents {
		for _, s := range a.seats {
			if s.worker == w {
				s.decodes = 0
			}
		}
	}
}

// zoneDown takes a zone away with all that runs and waits there, or brings it back as new.
func (r *run) zoneDown(z *zone, down bool, store float64) {
	z.deaths += step(down)
	if down && z.deaths > 1 || !down && z.deaths > 0 {
		return
	}
	z.down = down
	if !down {
		for _, w := range z.workers {
			r.revive(w, store)
		}
		for _, a := range z.agents {
			r.agentDown(a, false)
		}
		return
	}
	var there []*ride
	for _, a := range z.agents {
		there = append(there, r.abandon(a)...)
	}
	for _, w := range z.workers {
		r.kill(w, true)
	}
	for _, x := range there {
		r.orphan(x)
	}
}

// agentDown takes an instance of a zone away with what it passed on and what waited there, or brings it back as new.
func (r *run) agentDown(a *agent, down bool) {
	if down {
		for _, x := range r.abandon(a) {
			if x.seq != nil && !x.seq.Done() {
				x.worker.engine.Settle(r.time(r.now))
				x.worker.engine.Cancel(x.seq)
				r.plan(x.worker)
			}
			r.orphan(x)
		}
		return
	}
	if a.deaths--; a.deaths > 0 {
		return
	}
	a.down = false
	a.teller.last, a.teller.boot = nil, a.teller.boot+1
	if err := r.open(a); err != nil {
		r.failed = err
	}
}

// abandon counts a cause of an instance's death, and returns the requests there if it is the first.
func (r *run) abandon(a *agent) (there []*ride) {
	if a.deaths++; a.deaths > 1 {
		return nil
	}
	a.down = true
	for _, x := range r.rides {
		if x.agent == a && x.visit != nil && !x.over {
			there = append(there, x)
		}
	}
	return there
}

// orphan is a request whose instance died: what had not begun is tried elsewhere, and what had goes on there if it may. Where nothing
// but the end was missing, its gateway writes that.
func (r *run) orphan(x *ride) {
	r.serve(x)
	if x.seq != nil && x.seq.Done() && x.own != nil && !x.home.down && (x.guest == nil || !x.peer.down) {
		r.leave(x, openai.Usage{Prompt: x.req.PromptTokens, Completion: x.req.Output}, true)
		r.complete(x)
		x.visit = nil
		r.end(x, true)
		return
	}
	had := x.made
	if x.seq != nil {
		had += x.seq.Generated()
	}
	x.visit, x.worker, x.seat, x.seq, x.attempt = nil, nil, nil, nil, local.LabAttempt{}
	switch {
	case had == 0:
		r.gone(x)
	case x.moved && had == x.made:
		r.retryRest(x)
	case !r.carried(x, had-x.made):
		r.cutOffStream(x)
	}
}

// retryRest sends the rest of a resumed stream elsewhere when the instance that had it died before its first token. As in a
// gateway, that is the one retry of the resumed attempt and no second resumption.
func (r *run) retryRest(x *ride) {
	if x.home.down {
		r.cutOffStream(x)
		return
	}
	if x.guest != nil {
		x.peer.lab.Leave(x.guest, openai.Usage{}, false)
		x.guest, x.peer = nil, nil
	} else {
		x.home.lab.Suspect(x.agent.name, r.time(r.now))
	}
	x.home.lab.Leave(x.own, openai.Usage{}, false)
	r.again(x)
}

// carried has the gateway that took a request go on elsewhere with an answer that broke off after so many more tokens.
func (r *run) carried(x *ride, more int) bool {
	if x.own == nil || x.home.down || x.resumed || x.req.Output <= x.made+more {
		return false
	}
	if x.guest != nil {
		x.peer.lab.Leave(x.guest, openai.Usage{}, false)
		x.guest, x.peer = nil, nil
	} else {
		x.home.lab.Suspect(x.agent.name, r.time(r.now))
	}
	if !x.home.lab.Resume(x.own, more, len(r.rides)/max(len(r.gateways), 1), r.time(r.now)) {
		return false
	}
	x.made += more
	x.moved, x.resumed = true, true
	r.out.Resumed++
	r.choose(x)
	return true
}

// gone is a request whose zone died before its first byte, or was dead when it came.
func (r *run) gone(x *ride) {
	if x.own == nil {
		r.refuse(x, openai.CodeUpstream)
		return
	}
	g := x.home
	if x.guest != nil {
		g = x.peer
	}
	if !g.down {
		g.lab.Suspect(x.agent.name, r.time(r.now))
	}
	r.turnedAway(x, openai.CodeUpstream)
}

// gatewayDown takes a gateway away with the streams that it passed on, or brings it back as new.
func (r *run) gatewayDown(g *gateway, down bool) {
	if !down {
		if g.deaths--; g.deaths == 0 {
			g.down = false
			r.found(g)
		}
		return
	}
	if g.deaths++; g.deaths > 1 {
		return
	}
	g.down = true
	for _, x := range append([]*ride(nil), r.rides...) {
		if x.over || x.own == nil || x.home != g && (x.peer != g || x.guest == nil) {
			continue
		}
		r.dropped(x, g)
	}
}

// dropped is a request that went through a gateway that died. Its client sees that its connection broke: what had no byte is asked
// anew, elsewhere. Where it was a guest's, its own gateway tries it elsewhere.
func (r *run) dropped(x *ride, g *gateway) {
	r.serve(x)
	had := x.made
	if x.seq != nil {
		had += x.seq.Generated()
	}
	if x.visit != nil && !x.agent.down {
		r.recall(x)
	}
	onWay := x.visit == nil
	x.visit, x.worker, x.seat, x.seq, x.attempt = nil, nil, nil, nil, local.LabAttempt{}
	if x.home != g { // the peer died
		x.guest, x.peer = nil, nil
		switch {
		case onWay:
			x.astray = g
		case had == 0 || x.moved && had == x.made:
			r.shunned(x, g)
		case !r.carried(x, had-x.made):
			r.cutOffStream(x)
		}
		return
	}
	if x.guest != nil && !x.peer.down {
		x.peer.lab.Leave(x.guest, openai.Usage{}, false)
	}
	x.own, x.guest, x.peer = nil, nil, nil
	switch {
	case onWay: // what it is on its way to must find it
		x.astray = g
	case had > 0:
		r.cutOffStream(x)
	default:
		r.nobody(x)
	}
}

// shunned has the gateway that took a request try it elsewhere than at a peer that is dead.
func (r *run) shunned(x *ride, peer *gateway) {
	x.home.lab.Leave(x.own, openai.Usage{}, false)
	x.home.lab.Suspect(peer.name, r.time(r.now))
	r.again(x)
}

// strayed says that a gateway died while a request was on its way from there, and does what follows.
func (r *run) strayed(x *ride) bool {
	g := x.astray
	x.astray = nil
	switch {
	case g == nil:
		return false
	case g == x.home && x.made > 0:
		r.cutOffStream(x)
	case g == x.home:
		r.nobody(x)
	case x.made > 0 && !x.moved:
		r.cutOffStream(x)
	default:
		r.shunned(x, g)
	}
	return true
}

// recall frees what a request holds in a zone, as when its client has left.
func (r *run) recall(x *ride) {
	now := r.time(r.now)
	a := x.agent
	if x.worker == nil {
		a.lab.Quit(x.visit, now)
	} else {
		made := 0
		if x.seq != nil {
			made = x.seq.Generated()
			x.worker.engine.Settle(now)
			x.worker.engine.Cancel(x.seq)
			r.plan(x.worker)
			if made > 0 {
				x.decodes(-1)
			}
		}
		a.lab.End(x.attempt, openai.Usage{Completion: made}, local.EndClientGone, now, now)
	}
	a.lab.Forget(x.visit)
	r.settle(a)
}
