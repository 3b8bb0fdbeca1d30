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
	n := float64(m.Ready)
	seqs := float64(m.Running+load.Requests) / n
	held := float64(max(m.KVTotal-m.KVFree, 0)+load.KV) / n
	per := crowding * n / decodeRate(m) / 1000 // by which a token of context makes a worker's steps longer
	return answering * (seqs*prompt + float64(q.MaxTokens)*per*(seqs*float64(q.PromptTokens+q.MaxTokens)+held))
}
