package sim

import (
	"slices"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
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
