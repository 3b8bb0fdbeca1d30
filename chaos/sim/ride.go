package sim

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/pick"
	"github.com/spillway-lb/spillway/regional"
)

// ride is one request from its arrival to its end.
type ride struct {
	req      *load.Request
	due      int64
	slot     int // in run.rides
	measured bool
	over     bool
	agent    *agent
	seat     *seat // its worker, as that instance knows it
	visit    *local.LabVisit
	attempt  local.LabAttempt
	worker   *worker
	seq      *gpu.Sequence
	placed   int64 // when its worker was chosen
	first    int64 // token, at the worker
	last     int64
	believed int64
	made     int  // tokens of the answer by workers that were lost
	moved    bool // a gateway has sent the rest of it elsewhere, where nothing has come yet
	resumed  bool // a gateway has resumed the stream, which it does once

	// What follows is of a request above zones.
	own, guest *regional.LabRequest // at the gateway that took it, and at the peer that it went to
	home, peer *gateway
	access     int64 // the way between its client and that gateway
	within     float64
	tries      int
	astray     *gateway // it died while the request was on its way from there

	// And this of one that another system's balancers push: the one that has it, the replica that it is sent to, and the peer
	// that it was sent to, at the balancer that did so.
	push        *pusher
	there, from *target
}

// bytesPerToken is how long a token's text is: what the router estimates lengths by when the spec says nothing.
const bytesPerToken = 4

// quotes are the bytes around a prompt in its body: what a prompt costs is reckoned with them.
const quotes = 2

// arrive takes what the workload has due now, and plans the next time.
func (r *run) arrive() error {
	for {
		at, ok, err := r.s.Workload.Peek()
		if err != nil {
			return fmt.Errorf("reading the workload: %w", err)
		}
		if !ok || int64(at) >= int64(r.s.Duration) {
			return nil
		}
		if int64(at) > r.now {
			r.expect(int64(at))
			return nil
		}
		if err := r.admit(r.s.Workload.Pop()); err != nil {
			return err
		}
	}
}

// expect plans the workload's next arrival, unless that is planned already.
func (r *run) expect(at int64) {
	if r.awaited > r.now && r.awaited <= at {
		return
	}
	r.awaited = at
	r.agenda.add(event{at: at, kind: evArrive})
}

// admit lets a request arrive.
func (r *run) admit(q *load.Request) error {
	if q == nil {
		return errors.New("the workload announced a request and gave none: its Peek and Pop disagree")
	}
	if q.PromptTokens < 1 || q.Output < 1 {
		return fmt.Errorf("request %d of the workload has %d prompt and %d output tokens: give it at least one of each", q.ID, q.PromptTokens, q.Output)
	}
	x := &ride{req: q, due: r.now, measured: r.now >= int64(r.s.WarmUp), slot: len(r.rides)}
	r.rides = append(r.rides, x)
	r.count(x, func(c *Counts) { c.Sent++ })
	r.second(x).Sent++
	r.sent++
	if t := r.s.Threshold; t > 0 && len(r.rides) > t {
		r.count(x, func(c *Counts) { c.refuse(openai.CodeNoCapacity) })
		r.end(x, false)
		return nil
	}
	switch {
	case r.rival != noRival:
		r.call(x)
	case len(r.gateways) > 0:
		r.depart(x)
	default:
		r.enter(x, r.agents[0])
	}
	return nil
}

// estimate is a prompt's length as deciders take it before an engine has counted it: log-uniform around its length, and the
// same for each of them and for each policy.
func (r *run) estimate(q *load.Request) int {
	e := r.s.EstimateError
	if e == 0 {
		return q.PromptTokens
	}
	u := float64(mix(q.ID^mix(r.s.Seed^0xe571))>>11) / (1 << 53) // 0 to 1
	return max(1, int(math.Round(float64(q.PromptTokens)*math.Pow(1+e, 2*u-1))))
}

// enter hands a request to an instance of a zone.
func (r *run) enter(x *ride, a *agent) {
	if r.strayed(x) {
		return
	}
	q := x.req
	now := r.time(r.now)
	x.agent = a
	if a.down {
		r.gone(x)
		return
	}
	ask := &r.ask
	*ask = local.LabAsk{
		Model: r.model(q.Model), Tenant: r.tenant(q.Tenant), Class: r.class(q), Prompt: int64(r.estimate(q)),
		Bytes: int64(q.PromptTokens)*bytesPerToken + quotes, Retries: 1, Key: r.keyOf(q),
	}
	if r.s.Limits != nil {
		ask.MaxTokens = r.s.Limits(q)
	}
	if r.s.Told {
		ask.FirstToken, ask.Step = r.s.SLO.TTFT, r.s.SLO.TPOT
	}
	if x.made > 0 {
		whole := *q
		whole.Prompt = x.soFar(x.made)
		q = &whole
		ask.Prompt, ask.Bytes, ask.Continues = ask.Prompt+int64(x.made), ask.Bytes+int64(x.made)*bytesPerToken, x.made
		if ask.MaxTokens > 0 {
			ask.MaxTokens = max(ask.MaxTokens-x.made, 1)
		}
	}
	ask.Blocks = r.blocks(q)
	switch {
	case x.guest != nil:
		ask.Class, ask.Ticket, ask.Retries, ask.Marks = x.guest.Class(), x.peer.lab.Ticket(x.guest), x.guest.Retries(), r.marks(q)
	case x.own != nil:
		ask.Class, ask.Ticket, ask.Retries, ask.Marks = x.own.Class(), x.home.lab.Ticket(x.own), x.own.Retries(), r.marks(q)
	}
	x.visit = a.lab.Visit(ask, now)
	x.visit.Owner = x
	r.try(x)
}

// try asks the zone for a worker.
func (r *run) try(x *ride) {
	now := r.time(r.now)
	at, refusal, waits := x.agent.lab.Enter(x.visit, now)
	r.settle(x.agent)
	switch {
	case waits:
		if x.over || x.worker != nil {
			return // its wait has ended at once
		}
		r.poke(x.agent)
		r.agenda.add(event{at: max(int64(x.visit.Until().Sub(r.epoch)), r.now), kind: evLate, ride: x})
	default:
		r.verdict(x, at, refusal)
	}
}

// settle does what a floor has decided of those that waited.
func (r *run) settle(a *agent) {
	for {
		list := a.lab.Settled()
		if len(list) == 0 {
			return
		}
		r.scratch = append(r.scratch[:0], list...)
		todo := r.scratch
		r.scratch = nil
		for _, v := range todo {
			at, refusal := v.Verdict()
			r.verdict(v.Owner.(*ride), at, refusal)
		}
		r.scratch = todo
	}
}

func (r *run) verdict(x *ride, at local.LabAttempt, refusal *openai.Error) {
	if refusal != nil {
		r.turnedAway(x, refusal.Code)
		return
	}
	r.dispatch(x, at)
}

// late ends the wait of a request whose patience is over.
func (r *run) late(x *ride) {
	if x.over || x.worker != nil || x.visit == nil || x.agent.down || r.time(r.now).Before(x.visit.Until()) {
		return
	}
	if refusal := x.agent.lab.TooLate(x.visit, r.time(r.now)); refusal != nil {
		r.turnedAway(x, refusal.Code)
	}
}

// dispatch sends a request to the worker that was chosen.
func (r *run) dispatch(x *ride, at local.LabAttempt) {
	choice := at.Choice()
	x.seat = x.agent.seats[choice.ID]
	w := x.seat.worker
	x.attempt, x.believed = at, choice.Cached
	if r.s.OnDecision != nil {
		gate := ""
		if x.own != nil {
			gate = x.home.name
		}
		r.s.OnDecision(Decision{
			At: time.Duration(r.now), Request: x.req.ID, Region: w.zone.region.name, Zone: w.zone.name, Worker: w.name, Local: x.agent.name, Gateway: gate, Ask: x.tries, Made: x.made,
			Reason: choice.Reason, Seconds: choice.Seconds, Cached: choice.Cached,
		})
	}
	x.agent.lab.Begin(at, func() { r.giveUp(x) })
	r.submit(x, w)
}

// submit hands a request to a worker's engine.
func (r *run) submit(x *ride, w *worker) {
	now := r.time(r.now)
	x.worker, x.placed = w, r.now
	w.sent++
	r.out.Decisions++
	if w.dead > 0 {
		r.lose(x, local.EndLost, openai.CodeUpstream)
		return
	}
	seq, err := w.engine.Submit(now, r.asked(x))
	switch {
	case errors.Is(err, gpu.ErrTooLong):
		r.lose(x, local.EndTooLong, openai.CodeContextTooLong)
	case err != nil:
		r.lose(x, local.EndFull, openai.CodeNoCapacity)
	default:
		x.seq = seq
		r.plan(w)
	}
}

// token books a token that a worker has made for a request.
func (r *run) token(x *ride, s *gpu.Sequence, now time.Time) {
	if s.Generated() == 1 {
		x.decodes(+1)
		r.firstByte(x, now)
	}
	x.last = r.now
	if s.Done() {
		r.agenda.add(event{at: r.now + int64(gpu.Finish), kind: evFinish, ride: x})
	}
}

// decodes counts the answers that a worker is writing for an instance of its zone.
func (x *ride) decodes(by int) {
	if s := x.seat; s != nil {
		s.decodes = max(s.decodes+by, 0) // its worker may have died since the last token
	}
}

// finish books an answer that is complete.
func (r *run) finish(x *ride) {
	if x.over {
		return
	}
	q, s := x.req, x.seq
	u := openai.Usage{Prompt: q.PromptTokens + x.made, Completion: q.Output - x.made, Cached: s.Cached(), Stated: true}
	r.serve(x)
	x.decodes(-1)
	if x.push == nil {
		x.agent.lab.End(x.attempt, u, local.EndWhole, r.time(r.now), r.time(r.now))
		u.Prompt, u.Completion = q.PromptTokens, q.Output
		r.leave(x, u, true)
		r.settle(x.agent)
	}
	r.complete(x)
	r.end(x, true)
}

// lose ends an attempt that came to nothing, and tries the request elsewhere if it may be.
func (r *run) lose(x *ride, how local.LabEnd, code string) {
	now := r.time(r.now)
	had := 0
	r.serve(x)
	if x.seq != nil {
		had = x.seq.Generated()
	}
	if had > 0 {
		x.decodes(-1)
	}
	if x.push != nil {
		if how == local.EndTooLong {
			r.refuse(x, code)
		} else {
			r.broke(x)
		}
		return
	}
	x.agent.lab.End(x.attempt, openai.Usage{Completion: had}, how, r.time(x.last), now)
	at := x.attempt
	seat := x.seat
	x.worker, x.seq, x.attempt = nil, nil, local.LabAttempt{}
	if how == local.EndLost {
		r.agenda.add(event{at: r.now + 1, kind: evProbe, who: seat.at}) // whoever loses an answer looks at once
	}
	switch {
	case had > 0 && r.resumed(x, at, had):
		r.try(x)
	case had > 0:
		x.made += had
		r.cutOffStream(x)
	case how == local.EndTooLong:
		r.refuse(x, code)
	case how != local.EndFull && x.agent.lab.Again(x.visit, at, now):
		r.out.Retried++
		r.try(x)
	default:
		r.turnedAway(x, code)
	}
	r.settle(x.agent)
}

// giveUp ends an attempt that the floor has given up.
func (r *run) giveUp(x *ride) { r.given = append(r.given, x) }

func (r *run) refuse(x *ride, code string) {
	if x.made > 0 { // the client has a part of it
		r.cutOffStream(x)
		return
	}
	r.leave(x, openai.Usage{}, false)
	r.count(x, func(c *Counts) { c.refuse(code) })
	r.end(x, false)
}

// end takes a request out.
func (r *run) end(x *ride, ok bool) {
	x.over = true
	if x.push != nil {
		r.over(x)
	}
	last := r.rides[len(r.rides)-1]
	r.rides[x.slot], last.slot = last, x.slot
	r.rides[len(r.rides)-1] = nil
	r.rides = r.rides[:len(r.rides)-1]
	if x.visit != nil {
		x.agent.lab.Forget(x.visit)
		x.visit = nil
	}
	r.s.Workload.Ended(x.req, time.Duration(r.now+r.back(x)), ok)
	if at, ok, err := r.s.Workload.Peek(); err != nil {
		r.failed = fmt.Errorf("reading the workload: %w", err)
	} else if ok && int64(at) < int64(r.s.Duration) {
		r.expect(max(int64(at), r.now))
	}
}

// blocks are a prompt's as the router cuts them.
func (r *run) blocks(q *load.Request) []uint64 {
	r.cut = gpu.Cut(r.cut[:0], q.Prompt, func(i int) int {
		if i >= pick.MaxBlocks {
			return 0
		}
		return pick.BlockSize(i) / bytesPerToken
	})
	return r.cut
}

// keyOf is what a request is kept together by: its session.
func (r *run) keyOf(q *load.Request) uint64 {
	if r.s.key != nil {
		return r.s.key(q)
	}
	return q.Session | 1<<63
}

func (r *run) class(q *load.Request) spec.Class {
	if r.s.Class != nil && !r.s.Anonymous {
		return r.s.Class(q)
	}
	return spec.Interactive
}

func (r *run) tenant(n int32) string {
	if n >= 0 && int(n) < len(r.s.Tenants) && !r.s.Anonymous {
		return r.s.Tenants[n]
	}
	return spec.TenantAlone
}

func (r *run) model(n int32) string {
	if n >= 0 && int(n) < len(r.s.Models) {
		return r.s.Models[n]
	}
	return r.only
}
