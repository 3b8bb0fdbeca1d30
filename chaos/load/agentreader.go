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
	// agentBlockTokens is the number of tokens per block id of an agent trace.
	agentBlockTokens = 64
	// maxSessionBytes bounds a line of the trace, in bytes, and maxPromptBlocks the blocks of a request.
	maxSessionBytes = 64 << 20
	maxPromptBlocks = maxTraceTokens / agentBlockTokens
)

// agentSession is one session of an agent: its requests and their successors.
type agentSession struct {
	id    uint64
	turns []agentTurn
}

type agentTurn struct {
	prompt                     []Piece
	promptTokens, outputTokens int
	thinkTime                  time.Duration // after the answer that it follows
	followUps                  []int         // turns that follow this one's answer
}

// agentReader reads the format of the agentic traces: one JSON object per line, each one session. The next request of
// a session is sent its think time after the previous answer; a nested group of a subagent runs concurrently with the
// session that started it. Errors name the line.
type agentReader struct {
	scanner *bufio.Scanner
	line    int
}

func newAgentReader(r io.Reader) *agentReader {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 0, 256<<10), maxSessionBytes)
	return &agentReader{scanner: s}
}

// skipSession skips one session; false at the end.
func (a *agentReader) skipSession() (bool, error) {
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

// readSession returns one session with the given name; io.EOF after the last.
func (a *agentReader) readSession(name uint64) (*agentSession, error) {
	ok, err := a.skipSession()
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

// agentGroup is the requests of a session or a subagent.
type agentGroup struct {
	BlockSize    int            `json:"block_size"`
	ToolTokens   int            `json:"tool_tokens"`
	SystemTokens int            `json:"system_tokens"`
	Requests     []agentRequest `json:"requests"`
}

// agentRequest is one request, or a nested group if Type is "subagent".
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
	if g.BlockSize != 0 && g.BlockSize != agentBlockTokens {
		return nil, fmt.Errorf("block_size %d: only blocks of %d tokens are known", g.BlockSize, agentBlockTokens)
	}
	s := &agentSession{id: name}
	if err := s.addGroup(&g, -1, 0); err != nil {
		return nil, err
	}
	if len(s.turns) == 0 {
		return nil, fmt.Errorf("the session has no requests")
	}
	return s, nil
}

// addGroup adds a group's requests, the first of them think after the answer to a turn; -1 is the start of the
// session.
func (s *agentSession) addGroup(g *agentGroup, after int, think time.Duration) error {
	var begun float64 // when the latest request's answer ended, in the recording
	first := true
	for i := range g.Requests {
		r := &g.Requests[i]
		if !isSeconds(r.T) || !isSeconds(r.API) || !isSeconds(r.Think) {
			return fmt.Errorf("request %d: t, api_time and think_time are seconds", i)
		}
		if r.Type == "subagent" {
			if err := s.addGroup(&r.agentGroup, after, secondsToDuration(r.T-begun)); err != nil {
				return fmt.Errorf("request %d: %w", i, err)
			}
			continue
		}
		turn := agentTurn{promptTokens: max(r.In, 1), outputTokens: max(r.Out, 1), thinkTime: secondsToDuration(r.Think)}
		if first {
			turn.thinkTime, first = think, false
		}
		if r.In < 0 || r.In > maxTraceTokens || r.Out < 0 || r.Out > maxTraceTokens {
			return fmt.Errorf("request %d: %d and %d are not lengths in tokens", i, r.In, r.Out)
		}
		var err error
		if turn.prompt, err = s.cutPrompt(r, g); err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		s.turns = append(s.turns, turn)
		last := len(s.turns) - 1
		if after >= 0 {
			s.turns[after].followUps = append(s.turns[after].followUps, last)
		} else if last > 0 {
			s.turns[0].followUps = append(s.turns[0].followUps, last) // a group before any request
		}
		after, begun = last, r.T+r.API
	}
	return nil
}

// cutPrompt splits a prompt into the parts that it shares with others: the tools' and the system's part is the same
// in all sessions with as many tokens of each; everything else belongs to the session.
func (s *agentSession) cutPrompt(r *agentRequest, g *agentGroup) ([]Piece, error) {
	own := (g.ToolTokens + g.SystemTokens) / agentBlockTokens
	begins := len(g.Requests) > 0 && len(r.H) > 0 && len(g.Requests[0].H) > 0 && r.H[0][0] == g.Requests[0].H[0][0]
	room := max(r.In, 1)
	var list []Piece
	add := func(id uint64, blocks int) {
		if n := min(blocks*agentBlockTokens, room); n > 0 {
			list = append(list, Piece{ID: id, Tokens: n})
			room -= n
		}
	}
	for i, h := range r.H {
		from, to := h[0], h[1]
		if from < 0 || to < from || to-from >= maxPromptBlocks {
			return nil, fmt.Errorf("h: %d to %d is no range of blocks", from, to)
		}
		if i == 0 && begins && own > 0 {
			common := min(own, to-from+1)
			add(mixBits(mixBits(1<<60|uint64(g.ToolTokens))^uint64(g.SystemTokens)), common)
			from += common
		}
		add(mixBits(s.id^mixBits(uint64(h[0]))), to-from+1)
	}
	if room > 0 { // less than a block, or blocks that the recording does not list
		list = append(list, Piece{ID: mixBits(s.id ^ mixBits(1<<59|uint64(len(s.turns)))), Tokens: room})
	}
	return list, nil
}

func isSeconds(x float64) bool { return x >= 0 && x < 1e8 }

func secondsToDuration(seconds float64) time.Duration {
	return time.Duration(math.Max(seconds, 0) * float64(time.Second))
}
