package load

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// defaultAgentSpan is the default time over which the sessions of agents begin.
const defaultAgentSpan = time.Hour

// agentSource is sessions of agents, each a closed loop, that begin evenly over a time.
type agentSource struct {
	workload      *Workload
	path          string
	trace         *traceFile
	reader        *agentReader
	rng           *rand.Rand
	sessionCount  int // sessions in the trace
	begun, wanted int // sessions started, and to be started
	passed        int // lines of this pass through the trace
}

// rewindTrace starts a pass through the trace.
func (a *agentSource) rewindTrace() (err error) {
	if a.trace != nil {
		a.trace.Close()
	}
	if a.trace, err = openFile(a.path); err != nil {
		return err
	}
	a.reader, a.passed = newAgentReader(a.trace), 0
	return nil
}

func (a *agentSource) Close() error { return a.trace.Close() }

// NextRequest starts a session. Of a trace with more sessions than wanted, the seed selects a part; a trace with
// fewer is read again under other session names.
func (a *agentSource) NextRequest() (*Request, error) {
	for a.begun < a.wanted {
		if a.passed == a.sessionCount {
			if err := a.rewindTrace(); err != nil {
				return nil, err
			}
		}
		left := a.sessionCount - a.passed
		a.passed++
		if needed := a.wanted - a.begun; needed < left && a.rng.IntN(left) >= needed {
			if _, err := a.reader.skipSession(); err != nil {
				return nil, fmt.Errorf("%s: %w", a.path, err)
			}
			continue
		}
		s, err := a.reader.readSession(mixBits(a.workload.Seed ^ mixBits(1<<58|uint64(a.begun))))
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("the trace has become shorter")
			}
			return nil, fmt.Errorf("%s: %w", a.path, err)
		}
		at := time.Duration((float64(a.begun) + a.rng.Float64()) / float64(a.wanted) * float64(a.workload.Over))
		a.begun++
		c := &runningAgent{agentSession: s, workload: a.workload, region: a.workload.regionOfSession(s.id)}
		r := c.makeRequest(0)
		r.At = at
		return r, nil
	}
	return nil, io.EOF
}

// runningAgent is a running session.
type runningAgent struct {
	*agentSession
	workload *Workload
	region   int32
}

func (c *runningAgent) makeRequest(turn int) *Request {
	t := &c.turns[turn]
	r := &Request{
		Region: c.region, Session: c.id, Turn: int32(turn), Prompt: t.prompt, PromptTokens: t.promptTokens, Output: t.outputTokens, continuation: c,
	}
	c.workload.capLengths(r)
	return r
}

func (c *runningAgent) pushNext(r *Request, push func(time.Duration, *Request)) {
	for _, next := range c.turns[r.Turn].followUps {
		push(c.workload.capThinkTime(c.turns[next].thinkTime), c.makeRequest(next))
	}
}
