package sim

import (
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local"
)

// resumed has the zone go on with an answer whose worker was lost after had tokens; false when it may not.
func (r *run) resumed(x *ride, at local.LabAttempt, had int) bool {
	if x.visit == nil || x.agent.down {
		return false
	}
	whole := *x.req
	whole.Prompt = x.soFar(x.made + had)
	if !x.agent.lab.Resume(x.visit, at, had, r.blocks(&whole), r.time(r.now)) {
		return false
	}
	x.made += had
	r.out.Resumed++
	return true
}

// soFar is the prompt with so many tokens of its answer behind it.
func (x *ride) soFar(made int) []load.Piece {
	id := x.req.Answer
	if id == 0 {
		id = mix(x.req.ID)
	}
	return append(slices.Clip(x.req.Prompt), load.Piece{ID: id, Tokens: made})
}

// asked is a request as its worker gets it: what is left of its answer, with what there is of it behind the prompt.
func (r *run) asked(x *ride) gpu.Request {
	q := gpu.Request{Prompt: x.req.Prompt, Answer: x.req.Answer, PromptTokens: x.req.PromptTokens, OutputTokens: x.req.Output, Owner: x}
	if x.made > 0 {
		q.Prompt, q.Answer = x.soFar(x.made), 0
		q.PromptTokens, q.OutputTokens = q.PromptTokens+x.made, q.OutputTokens-x.made
	}
	return q
}

// firstByte books the first token of an attempt.
func (r *run) firstByte(x *ride, now time.Time) {
	if x.made == 0 {
		x.first = r.now
	}
	if x.push != nil {
		r.spoke(x)
		return
	}
	x.agent.lab.FirstByte(x.attempt, now)
	if x.made == 0 || x.moved {
		x.moved = false
		r.begun(x)
	}
}

// cutOffStream ends an answer of which the client has a part.
func (r *run) cutOffStream(x *ride) {
	r.leave(x, openai.Usage{Completion: x.made}, false)
	r.count(x, func(c *Counts) { c.Cut++ })
	r.end(x, false)
}
