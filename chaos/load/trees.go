package load

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

const (
	// treeDepth is how many levels of thoughts a tree has, the root's question among them.
	treeDepth = 4
	// treeExamples is what every question begins with, in tokens: the instruction and its worked examples.
	treeExamples = 384
)

// Lengths of a tree's questions and thoughts.
var (
	treeQuestion = Lengths{Median: 128, P90: 256, Max: 512}
	treeThought  = Lengths{Median: 192, P90: 320, Max: 512}
)

// trees is the tree-of-thoughts workload: each client has one tree after the other; a thought is asked for as soon as the
// one before it has come, with that one's prompt and answer as its prompt.
func (w *Workload) trees() (Roots, error) {
	branches := w.Branches
	if len(branches) == 0 {
		branches = []int{cmp.Or(w.Branch, 2)}
	}
	for _, b := range branches {
		if b < 1 || b > 16 {
			return nil, fmt.Errorf("branch %d: use 1 to 16 thoughts after each thought", b)
		}
	}
	clients := []int{40, 20, 20}
	return w.closed(clients, func(c *client) *Request {
		return (&tree{w: w, c: c, branch: branches[min(int(c.region), len(branches)-1)]}).begin()
	}), nil
}

// tree is one client's trees, of which one is on its way.
type tree struct {
	w      *Workload
	c      *client
	branch int
	id     uint64
	asked  int32 // thoughts of this tree that were asked for
	open   int   // of those, not answered yet
}

// thought is one place in a tree.
type thought struct {
	*tree
	level int
}

func (t *tree) begin() *Request {
	t.id, t.asked = t.c.next(), 0
	question := []Piece{{ID: mix(0x7ee5), Tokens: treeExamples}, {ID: mix(t.id), Tokens: treeQuestion.draw(t.c.rng)}}
	return t.ask(question, 1)
}

func (t *tree) ask(prompt []Piece, level int) *Request {
	turn := t.asked
	t.asked++
	t.open++
	return t.c.request(t.w, thought{t, level}, t.id, int(turn), prompt, treeThought.draw(t.c.rng), mix(t.id^mix(uint64(turn)+1)))
}

func (t thought) ended(r *Request, push func(time.Duration, *Request)) {
	t.open--
	if t.level < treeDepth {
		prompt := append(slices.Clip(r.Prompt), Piece{ID: r.Answer, Tokens: r.Output})
		for range t.branch {
			push(0, t.ask(prompt, t.level+1))
		}
	}
	if t.open == 0 {
		push(0, t.begin())
	}
}
