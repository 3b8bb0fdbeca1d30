package load

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// agentsOver is the time over which the sessions of agents begin where nothing else is said.
const agentsOver = time.Hour

// agents are sessions of agents, each a closed loop, that begin evenly over a time.
type agents struct {
	w       *Workload
	path    string
	trace   *opened
	reader  *agentReader
	rng     *rand.Rand
	known   int // sessions in the trace
	n, want int // sessions begun, and to begin
	at      int // lines of this pass through the trace
}

func (w *Workload) agentic() (Roots, error) {
	a := &agents{w: w, path: w.file("agentic/agent-sessions_train.jsonl.gz"), want: w.Sessions, rng: rand.New(rand.NewPCG(w.Seed, 0xa9e7))}
	if err := a.rewind(); err != nil {
		return nil, err
	}
	for {
		ok, err := a.reader.skip()
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", a.path, err), a.Close())
		}
		if !ok {
			break
		}
		a.known++
	}
	if a.known == 0 {
		return nil, errors.Join(fmt.Errorf("%s: no sessions", a.path), a.Close())
	}
	if a.want == 0 {
		a.want = a.known
	}
	if a.w.Over == 0 {
		a.w.Over = agentsOver
		if w.Rate > 0 {
			a.w.Over = time.Duration(float64(a.want) / w.Rate * float64(time.Second))
		}
	}
	return a, a.rewind()
}

// rewind begins a pass through the trace.
func (a *agents) rewind() (err error) {
	if a.trace != nil {
		a.trace.Close()
	}
	if a.trace, err = openFile(a.path); err != nil {
		return err
	}
	a.reader, a.at = newAgentReader(a.trace), 0
	return nil
}

func (a *agents) Close() error { return a.trace.Close() }

// Next begins a session. Of a trace with more than are wanted a part is taken that the seed decides; one with fewer is
// gone through again under other names.
func (a *agents) Next() (*Request, error) {
	for a.n < a.want {
		if a.at == a.known {
			if err := a.rewind(); err != nil {
				return nil, err
			}
		}
		left := a.known - a.at
		a.at++
		if needed := a.want - a.n; needed < left && a.rng.IntN(left) >= needed {
			if _, err := a.reader.skip(); err != nil {
				return nil, fmt.Errorf("%s: %w", a.path, err)
			}
			continue
		}
		s, err := a.reader.read(mix(a.w.Seed ^ mix(1<<58|uint64(a.n))))
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the trace has become shorter")
			}
			return nil, fmt.Errorf("%s: %w", a.path, err)
		}
		at := time.Duration((float64(a.n) + a.rng.Float64()) / float64(a.want) * float64(a.w.Over))
		a.n++
		c := &agentCourse{agentSession: s, w: a.w, region: a.w.region(s.id)}
		r := c.request(0)
		r.At = at
		return r, nil
	}
	return nil, io.EOF
}

// agentCourse is a session on its way.
type agentCourse struct {
	*agentSession
	w      *Workload
	region int32
}

func (c *agentCourse) request(turn int) *Request {
	t := &c.turns[turn]
	r := &Request{
		Region: c.region, Session: c.id, Turn: int32(turn), Prompt: t.prompt, PromptTokens: t.tokens, Output: t.out, course: c,
	}
	c.w.cap(r)
	return r
}

func (c *agentCourse) ended(r *Request, push func(time.Duration, *Request)) {
	for _, next := range c.turns[r.Turn].then {
		push(c.w.think(c.turns[next].think), c.request(next))
	}
}

// cap cuts a request to the workload's longest.
func (w *Workload) cap(r *Request) {
	if w.MaxPrompt > 0 && r.PromptTokens > w.MaxPrompt {
		r.PromptTokens = w.MaxPrompt
		r.Prompt = clip(r.Prompt, w.MaxPrompt)
	}
	if w.MaxOutput > 0 {
		r.Output = min(r.Output, w.MaxOutput)
	}
}

// clip is the first so many tokens of a text.
func clip(text []Piece, tokens int) []Piece {
	for i := range text {
		if tokens -= text[i].Tokens; tokens <= 0 {
			out := append([]Piece(nil), text[:i+1]...)
			out[i].Tokens += tokens
			return out
		}
	}
	return text
}

func (w *Workload) think(d time.Duration) time.Duration {
	if w.MaxThink > 0 {
		return min(d, w.MaxThink)
	}
	return d
}
