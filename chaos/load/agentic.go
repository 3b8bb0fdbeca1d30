package load

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"
)

const (
	// agentBlock is how many tokens one block id of an agents' trace stands for.
	agentBlock = 64
	// maxSession bounds a line of it, in bytes, and maxBlocks a request's blocks.
	maxSession = 64 << 20
	maxBlocks  = maxTokens / agentBlock
)

// agentSession is one session of an agent: what it asks, and what each answer is followed by.
type agentSession struct {
	id    uint64
	turns []agentTurn
}

type agentTurn struct {
	prompt      []Piece
	tokens, out int
	think       time.Duration // after the answer that it follows
	then        []int         // turns that follow this one's answer
}

// agentReader reads the format of the agentic traces: a JSON object a line, one session each. The next request of a
// session leaves its think time after the previous answer; a nested group of a subagent runs beside the session that
// started it. Errors name the line.
type agentReader struct {
	scanner *bufio.Scanner
	line    int
}

func newAgentReader(r io.Reader) *agentReader {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 256<<10), maxSession)
	return &agentReader{scanner: s}
}

// skip passes over one session; false at the end.
func (a *agentReader) skip() (bool, error) {
	for a.scanner.Scan() {
		a.line++
		if len(bytes.TrimSpace(a.scanner.Bytes())) > 0 {
			return true, nil
		}
	}
	if err := a.scanner.Err(); err != nil {
		return false, fmt.Errorf("after line %d: %w", a.line, err)
	}
	return false, nil
}

// read returns one session under a name of its own; io.EOF after the last.
func (a *agentReader) read(name uint64) (*agentSession, error) {
	ok, err := a.skip()
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, io.EOF
	}
	s, err := parseSession(a.scanner.Bytes(), name)
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", a.line, err)
	}
	return s, nil
}

// agentGroup is a session's or a subagent's requests.
type agentGroup struct {
	BlockSize    int            `json:"block_size"`
	ToolTokens   int            `json:"tool_tokens"`
	SystemTokens int            `json:"system_tokens"`
	Requests     []agentRequest `json:"requests"`
}

// agentRequest is one request, or a nested group where Type is "subagent".
type agentRequest struct {
	T     float64  `json:"t"`
	Type  string   `json:"type"`
	In    int      `json:"in"`
	Out   int      `json:"out"`
	API   float64  `json:"api_time"`
	Think float64  `json:"think_time"`
	H     [][2]int `json:"h"`
	agentGroup
}

func parseSession(line []byte, name uint64) (*agentSession, error) {
	var g agentGroup
	if err := json.Unmarshal(line, &g); err != nil {
		return nil, fmt.Errorf("reading the session: %w", err)
	}
	if g.BlockSize != 0 && g.BlockSize != agentBlock {
		return nil, fmt.Errorf("block_size %d: only blocks of %d tokens are known", g.BlockSize, agentBlock)
	}
	s := &agentSession{id: name}
	if err := s.group(&g, -1, 0); err != nil {
		return nil, err
	}
	if len(s.turns) == 0 {
		return nil, fmt.Errorf("the session has no requests")
	}
	return s, nil
}

// group adds a group's requests, the first of them so long after the answer to a turn; -1 is the session's begin.
func (s *agentSession) group(g *agentGroup, after int, think time.Duration) error {
	var begun float64 // when the latest request's answer ended, in the recording
	first := true
	for i := range g.Requests {
		r := &g.Requests[i]
		if !seconds64(r.T) || !seconds64(r.API) || !seconds64(r.Think) {
			return fmt.Errorf("request %d: t, api_time and think_time are seconds", i)
		}
		if r.Type == "subagent" {
			if err := s.group(&r.agentGroup, after, span(r.T-begun)); err != nil {
				return fmt.Errorf("request %d: %w", i, err)
			}
			continue
		}
		turn := agentTurn{tokens: max(r.In, 1), out: max(r.Out, 1), think: span(r.Think)}
		if first {
			turn.think, first = think, false
		}
		if r.In < 0 || r.In > maxTokens || r.Out < 0 || r.Out > maxTokens {
			return fmt.Errorf("request %d: %d and %d are not lengths in tokens", i, r.In, r.Out)
		}
		var err error
		if turn.prompt, err = s.text(r, g); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		s.turns = append(s.turns, turn)
		last := len(s.turns) - 1
		if after >= 0 {
			s.turns[after].then = append(s.turns[after].then, last)
		} else if last > 0 {
			s.turns[0].then = append(s.turns[0].then, last) // a group before any request
		}
		after, begun = last, r.T+r.API
	}
	return nil
}

// text cuts a prompt at what its blocks have in common with others: the tools' and the system's part is the same in all
// sessions that have as many tokens of each; everything else is the session's.
func (s *agentSession) text(r *agentRequest, g *agentGroup) ([]Piece, error) {
	own := (g.ToolTokens + g.SystemTokens) / agentBlock
	begins := len(g.Requests) > 0 && len(r.H) > 0 && len(g.Requests[0].H) > 0 && r.H[0][0] == g.Requests[0].H[0][0]
	room := max(r.In, 1)
	var list []Piece
	add := func(id uint64, blocks int) {
		if n := min(blocks*agentBlock, room); n > 0 {
			list = append(list, Piece{ID: id, Tokens: n})
			room -= n
		}
	}
	for i, h := range r.H {
		from, to := h[0], h[1]
		if from < 0 || to < from || to-from >= maxBlocks {
			return nil, fmt.Errorf("h: %d to %d is no range of blocks", from, to)
		}
		if i == 0 && begins && own > 0 {
			common := min(own, to-from+1)
			add(mix(mix(1<<60|uint64(g.ToolTokens))^uint64(g.SystemTokens)), common)
			from += common
		}
		add(mix(s.id^mix(uint64(h[0]))), to-from+1)
	}
	if room > 0 { // less than a block, or blocks that the recording does not name
		list = append(list, Piece{ID: mix(s.id ^ mix(1<<59|uint64(len(s.turns)))), Tokens: room})
	}
	return list, nil
}

func seconds64(x float64) bool { return x >= 0 && x < 1e8 }

func span(seconds float64) time.Duration {
	return time.Duration(math.Max(seconds, 0) * float64(time.Second))
}
