package sim

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/sched"
)

// resumeInZone lets the zone resume an answer whose worker was lost after had tokens; false when it may not.
func (r *simulation) resumeInZone(x *simulatedRequest, at *sched.Attempt, had int) bool {
	if x.zoneRequest == nil || x.instance.down {
		return false
	}
	whole := *x.req
	whole.Prompt = x.promptWithAnswer(x.priorTokens + had)
	if !x.instance.sim.resumeRequest(x.zoneRequest, at, had, r.promptBlocks(&whole), r.timeAt(r.now)) {
		return false
	}
	x.priorTokens += had
	r.result.Resumed++
	return true
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
func (r *simulation) engineRequest(x *simulatedRequest) gpu.EngineRequest {
	q := gpu.EngineRequest{Prompt: x.req.Prompt, AnswerID: x.req.Answer, PromptTokens: x.req.PromptTokens, OutputTokens: x.req.Output, Owner: x}
	if x.priorTokens > 0 {
		q.Prompt, q.AnswerID = x.promptWithAnswer(x.priorTokens), 0
		q.PromptTokens, q.OutputTokens = q.PromptTokens+x.priorTokens, q.OutputTokens-x.priorTokens
	}
	return q
}

// recordFirstToken records the first token of an attempt.
func (r *simulation) recordFirstToken(x *simulatedRequest, now time.Time) {
	if x.priorTokens == 0 {
		x.firstTokenAt = r.now
	}
	if x.balancer != nil {
		r.recordReplicaFirstToken(x)
		return
	}
	x.instance.sim.RecordFirstByte(x.attempt, true, now)
	if x.priorTokens == 0 || x.restMoved {
		x.restMoved = false
		r.recordGatewayFirstByte(x)
	}
}

// endCutStream ends an answer of which the client has received a part.
func (r *simulation) endCutStream(x *simulatedRequest) {
	r.releaseGateways(x, openai.TokenUsage{Completion: x.priorTokens}, false)
	r.countRequest(x, func(c *RequestCounts) { c.Cut++ })
	r.endRequest(x, false)
}
