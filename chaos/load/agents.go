package load

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

func (w *Workload) openAgents() (RootSource, error) {
	path, err := w.tracePath(agentTrace)
	if err != nil {
		return nil, err
	}
	a := &agentSource{workload: w, path: path, wanted: w.Sessions, rng: rand.New(rand.NewPCG(w.Seed, 0xa9e7))}
	if err := a.rewindTrace(); err != nil {
		return nil, err
	}
	for {
		ok, err := a.reader.skipSession()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", a.path, err), a.Close())
		}
		if !ok {
			break
		}
		a.sessionCount++
	}
	if a.sessionCount == 0 {
		return nil, errors.Join(fmt.Errorf("%s: no sessions", a.path), a.Close())
	}
	if a.wanted == 0 {
		a.wanted = a.sessionCount
	}
	if a.workload.Over == 0 {
		a.workload.Over = defaultAgentSpan
		if w.Rate > 0 {
			a.workload.Over = time.Duration(float64(a.wanted) / w.Rate * float64(time.Second))
		}
	}
	return a, a.rewindTrace()
}

// capLengths limits a request to the workload's maximum lengths.
func (w *Workload) capLengths(r *Request) {
	if w.MaxPrompt > 0 && r.PromptTokens > w.MaxPrompt {
		r.PromptTokens = w.MaxPrompt
		r.Prompt = clipPrompt(r.Prompt, w.MaxPrompt)
	}
	if w.MaxOutput > 0 {
		r.Output = min(r.Output, w.MaxOutput)
	}
}

// clipPrompt is the first tokens of a text.
func clipPrompt(text []Piece, tokens int) []Piece {
	for i := range text {
		if tokens -= text[i].Tokens; tokens <= 0 {
			out := append([]Piece(nil), text[:i+1]...)
			out[i].Tokens += tokens
			return out
		}
	}
	return text
}

func (w *Workload) capThinkTime(d time.Duration) time.Duration {
	if w.MaxThink > 0 {
		return min(d, w.MaxThink)
	}
	return d
}

// openTrees is the tree-of-thoughts workload: each client has one tree after the other; a thought is requested as
// soon as its parent is answered, with the parent's prompt and answer as its prompt.
func (w *Workload) openTrees() (RootSource, error) {
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
	return w.newClosedLoop(clients, func(c *loopClient) *Request {
		return (&thoughtTree{workload: w, client: c, branch: branches[min(int(c.region), len(branches)-1)]}).beginTree()
	}), nil
}
