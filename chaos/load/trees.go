package load

import (
	"slices"
	"time"
)

const (
	// treeDepth is the number of levels of a tree, including the root's question.
	treeDepth = 4
	// treeExampleTokens is the common prefix of all questions, in tokens: the instruction and its worked examples.
	treeExampleTokens = 384
)

// Lengths of a tree's questions and thoughts.
var (
	treeQuestion = LengthDist{Median: 128, P90: 256, Max: 512}
	treeThought  = LengthDist{Median: 192, P90: 320, Max: 512}
)

// thoughtTree is one client's trees, one at a time.
type thoughtTree struct {
	workload   *Workload
	client     *loopClient
	branch     int
	id         uint64
	askedCount int32 // requested thoughts of this tree
	unanswered int   // of those, not answered yet
}

// treeThoughtNode is a node of a tree.
type treeThoughtNode struct {
	*thoughtTree
	level int
}

func (t *thoughtTree) beginTree() *Request {
	t.id, t.askedCount = t.client.nextID(), 0
	question := []Piece{{ID: mixBits(0x7ee5), Tokens: treeExampleTokens}, {ID: mixBits(t.id), Tokens: treeQuestion.drawLength(t.client.rng)}}
	return t.askThought(question, 1)
}

func (t *thoughtTree) askThought(prompt []Piece, level int) *Request {
	turn := t.askedCount
	t.askedCount++
	t.unanswered++
	return t.client.makeRequest(t.workload, treeThoughtNode{t, level}, t.id, int(turn), prompt, treeThought.drawLength(t.client.rng), mixBits(t.id^mixBits(uint64(turn)+1)))
}

func (t treeThoughtNode) pushNext(r *Request, push func(time.Duration, *Request)) {
	t.unanswered--
	if t.level < treeDepth {
		prompt := append(slices.Clip(r.Prompt), Piece{ID: r.Answer, Tokens: r.Output})
		for range t.branch {
			push(0, t.askThought(prompt, t.level+1))
		}
	}
	if t.unanswered == 0 {
		push(0, t.beginTree())
	}
}
