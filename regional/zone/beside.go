package zone

import "github.com/spillway-lb/spillway/internal/capacity"

// price is what a query costs at a child, in seconds.
type price struct {
	first  float64 // until its first token
	beside float64 // what it and the answers under way there cost each other
}

func (p price) cost() float64 { return p.first + p.beside }

// answering is what a second by which answers take longer counts against a second of a first token. It is less than where a
// worker is chosen (pick.answering, 0.1): what is known of a zone is older and a mean of its workers, and a way to another region
// is paid for certain. From 0.02 to 0.1 there is little between what regions serve; the more, the later first tokens are.
const answering = 0.02

// beside is what a query whose own prompt takes so many seconds, and the answers that it finds on a worker of the child, cost each
// other: each stands still while the prompt is computed, each of their steps bears the query's context for as long as it decodes,
// and each of its own steps theirs. Without it a zone whose queue is empty looks free however slowly its many answers go on.
func (q *Query) beside(m *capacity.Model, load Load, prompt float64) float64 {
	n, choices := float64(m.Ready), float64(max(q.Choices, 1))
	seqs := float64(answers(m)+load.Requests) / n
	held := float64(max(m.KVTotal-m.KVFree, 0)+load.KV) / n
	per := crowding * n / decodeRate(m) / 1000 // by which a token of context makes a worker's steps longer
	steps := float64(q.MaxTokens) / choices
	context := choices * (float64(q.PromptTokens) + steps/2) // the query's own, on average
	return min(answering*(seqs*prompt+steps*per*(seqs*context+held)), maxRoomWait)
}

// answers is how many are under way on the workers that take requests. Running counts those too that finish on a worker that
// takes none any more, which are beside nobody: a region that restarts its workers one by one would look crowded.
func answers(m *capacity.Model) int64 {
	if m.SlotsTotal > 0 {
		return max(m.SlotsTotal-m.SlotsFree, 0)
	}
	return m.Running
}
