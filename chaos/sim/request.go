package sim

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/sched"
)

// simulatedRequest is one request from its arrival to its end.
type simulatedRequest struct {
	req             *load.Request
	dueAt           int64
	activeIndex     int // in requestTable.active
	measured        bool
	ended           bool
	instance        *localInstance
	handle          *workerHandle // its worker, at that instance
	zoneRequest     *zoneRequest
	attempt         *sched.Attempt
	worker          *simulatedWorker
	sequence        *gpu.Sequence
	placedAt        int64 // when its worker was chosen
	firstTokenAt    int64 // first token, at the worker
	lastTokenAt     int64
	predictedCached int64
	priorTokens     int  // tokens of the answer by lost workers
	cutByWorker     bool // its worker broke its stream: the attempt ends before the next event
	restMoved       bool // a gateway has sent the rest of it elsewhere, and no token of that has arrived
	gatewayResumed  bool // a gateway has resumed the stream, which it does once

	// Fields of a request above zones.
	homeRequest, peerRequest *routedRequest // at the gateway that received it, and at the peer that it went to
	homeGateway, peerGateway *gatewayInstance
	accessDelay              int64 // one-way delay between its client and that gateway
	spillCostLimit           float64
	clientTries              int
	deadGateway              *gatewayInstance // it died while the request was in transit from it

	// Fields of a request of a baseline's balancers: the one that has it, the replica that it is sent to, and the
	// peer that it was sent to, at the sending balancer.
	balancer           *baselineBalancer
	replica, spilledAt *balancerTarget
}

// addDecoding counts the running answers of a worker for an instance of its zone.
func (x *simulatedRequest) addDecoding(by int) {
	if s := x.handle; s != nil {
		s.decoding = max(s.decoding+by, 0) // its worker may have died since the last token
	}
}

// promptWithAnswer is the prompt followed by the given number of tokens of its answer.
func (x *simulatedRequest) promptWithAnswer(made int) []load.Piece {
	id := x.req.Answer
	if id == 0 {
		id = splitMix64(x.req.ID)
	}
	return append(slices.Clip(x.req.Prompt), load.Piece{ID: id, Tokens: made})
}

// engineRequest is a request as sent to its worker: the rest of its answer, with the answer so far after the prompt.
func (x *simulatedRequest) engineRequest() gpu.EngineRequest {
	q := gpu.EngineRequest{Prompt: x.req.Prompt, AnswerID: x.req.Answer, PromptTokens: x.req.PromptTokens, OutputTokens: x.req.Output, Owner: x}
	if x.priorTokens > 0 {
		q.Prompt, q.AnswerID = x.promptWithAnswer(x.priorTokens), 0
		q.PromptTokens, q.OutputTokens = q.PromptTokens+x.priorTokens, q.OutputTokens-x.priorTokens
	}
	return q
}

// requestTable starts the workload's requests and ends them.
type requestTable struct {
	scenario      *Scenario
	active        []*simulatedRequest // not ended yet
	nextArrivalAt int64               // time of the scheduled arrival

	loop      *eventLoop
	topology  *topology
	network   *network
	recorder  *recorder
	zones     *zoneTier
	regional  *gatewayTier
	baselines *baselineTier
	observer  *observer
}

// admitArrivals starts the requests of the workload that are due, and schedules the next.
func (rt *requestTable) admitArrivals() error {
	for {
		at, ok, err := rt.scenario.Workload.Peek()
		if err != nil {
			return fmt.Errorf("reading the workload: %w", err)
		}
		if !ok || int64(at) >= int64(rt.scenario.Duration) {
			return nil
		}
		if int64(at) > rt.loop.now {
			rt.scheduleArrival(int64(at))
			return nil
		}
		if err := rt.startRequest(rt.scenario.Workload.Pop()); err != nil {
			return err
		}
	}
}

// scheduleArrival schedules the workload's next arrival, unless it is scheduled already.
func (rt *requestTable) scheduleArrival(at int64) {
	if rt.nextArrivalAt > rt.loop.now && rt.nextArrivalAt <= at {
		return
	}
	rt.nextArrivalAt = at
	rt.loop.addEvent(event{at: at, kind: evArrivalDue})
}

// startRequest starts a request.
func (rt *requestTable) startRequest(q *load.Request) error {
	if q == nil {
		return errors.New("the workload announced a request and gave none: its Peek and Pop disagree")
	}
	if q.PromptTokens < 1 || q.Output < 1 {
		return fmt.Errorf("request %d of the workload has %d prompt and %d output tokens: give it at least one of each", q.ID, q.PromptTokens, q.Output)
	}
	x := &simulatedRequest{req: q, dueAt: rt.loop.now, measured: rt.loop.now >= int64(rt.scenario.WarmUp), activeIndex: len(rt.active)}
	rt.active = append(rt.active, x)
	rt.recorder.countRequest(x, func(c *RequestCounts) { c.Sent++ })
	rt.recorder.countsForDueSecond(x).Sent++
	rt.recorder.sentCount++
	rt.observer.recordDue(x)
	if t := rt.scenario.MaxInflight; t > 0 && len(rt.active) > t {
		rt.observer.recordFailure(x, "refused", openai.CodeNoCapacity)
		rt.recorder.countRequest(x, func(c *RequestCounts) { c.addRefusal(openai.CodeNoCapacity) })
		rt.endRequest(x, false)
		return nil
	}
	switch {
	case rt.baselines.rule != noBaseline:
		rt.baselines.sendToBalancer(x)
	case len(rt.topology.gateways) > 0:
		rt.regional.sendToGateway(x)
	default:
		rt.zones.arriveAtZone(x, rt.topology.instances[0])
	}
	return nil
}

func (rt *requestTable) refuseRequest(x *simulatedRequest, code string) {
	if x.priorTokens > 0 { // the client has received a part of it
		rt.endCutStream(x)
		return
	}
	rt.regional.releaseGateways(x, openai.TokenUsage{}, false)
	rt.observer.recordFailure(x, "refused", code)
	rt.recorder.countRequest(x, func(c *RequestCounts) { c.addRefusal(code) })
	rt.endRequest(x, false)
}

// endCutStream ends an answer of which the client has received a part.
func (rt *requestTable) endCutStream(x *simulatedRequest) {
	rt.regional.releaseGateways(x, openai.TokenUsage{Completion: x.priorTokens}, false)
	rt.observer.recordFailure(x, "cut", "")
	rt.recorder.countRequest(x, func(c *RequestCounts) { c.Cut++ })
	rt.endRequest(x, false)
}

// endRequest removes a request.
func (rt *requestTable) endRequest(x *simulatedRequest, ok bool) {
	x.ended = true
	if x.balancer != nil {
		rt.baselines.releaseBalancers(x)
	}
	last := rt.active[len(rt.active)-1]
	rt.active[x.activeIndex], last.activeIndex = last, x.activeIndex
	rt.active[len(rt.active)-1] = nil
	rt.active = rt.active[:len(rt.active)-1]
	if x.zoneRequest != nil {
		x.instance.sim.recycleRequest(x.zoneRequest)
		x.zoneRequest = nil
	}
	rt.scenario.Workload.FinishRequest(x.req, time.Duration(rt.loop.now+rt.network.responseDelay(x)), ok)
	if at, ok, err := rt.scenario.Workload.Peek(); err != nil {
		rt.loop.failure = fmt.Errorf("reading the workload: %w", err)
	} else if ok && int64(at) < int64(rt.scenario.Duration) {
		rt.scheduleArrival(max(int64(at), rt.loop.now))
	}
}
