package routing

import "github.com/spillway-lb/spillway/internal/capacity"

// routeCost is the predicted cost of a query at a child, in seconds.
type routeCost struct {
	ttft         float64 // predicted time to the first token
	interference float64 // cost of the slowdown between it and the responses in progress there
}

func (p routeCost) totalSeconds() float64 { return p.ttft + p.interference }

// interferenceSeconds returns the cost of the slowdown between a query and the responses in progress on one worker of the
// child, in seconds of TTFT:
//
//	interferenceWeight * (seqs*prompt + steps*per*(seqs*context + held))
//
// The seqs responses pause for the prompt seconds of its prefill. For each of its steps decode steps, the query's context
// slows the responses, and their held context tokens slow the query, by per seconds per token. Without this term a zone
// with an empty queue would look idle however many responses it is decoding.
func (q *RouteQuery) interferenceSeconds(m *capacity.ModelCapacity, load SentLoad, prompt float64) float64 {
	n, choices := float64(m.Ready), float64(max(q.Choices, 1))
	seqs := float64(runningAnswers(m)+load.Requests) / n
	held := float64(max(m.KVTotal-m.KVFree, 0)+load.KV) / n
	per := decodeLoadShare * n / decodeRate(m) / 1000 // seconds that one token of context adds to a decode step of a worker
	steps := float64(q.MaxTokens) / choices
	context := choices * (float64(q.PromptTokens) + steps/2) // the query's own context, on average
	return min(interferenceWeight*(seqs*prompt+steps*per*(seqs*context+held)), maxRoomWait)
}

// runningAnswers returns the number of responses in progress on workers that accept requests. Running also counts those on
// draining workers, which do not slow new requests down: a region that restarts its workers one by one would look loaded.
func runningAnswers(m *capacity.ModelCapacity) int64 {
	if m.SlotsTotal > 0 {
		return max(m.SlotsTotal-m.SlotsFree, 0)
	}
	return m.Running
}
