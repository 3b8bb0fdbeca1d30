package load

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// maxTokens is the longest prompt or output that a trace may ask for.
const maxTokens = 10_000_000

// Azure reads the format of the Azure LLM inference traces: a heading line, then TIMESTAMP,ContextTokens,GeneratedTokens.
// Prompts share nothing, for the trace does not say what they share. Errors name the line.
func Azure(r io.Reader, seed uint64) Source {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 0, 4096), 4096)
	return &azure{scanner: scanner, seed: seed}
}

type azure struct {
	scanner *bufio.Scanner
	seed    uint64
	line    int
	first   time.Time
	last    time.Duration
}

func (s *azure) Next() (Arrival, error) {
	for s.scanner.Scan() {
		s.line++
		text := strings.TrimSpace(s.scanner.Text())
		if text == "" || s.line == 1 && strings.HasPrefix(text, "TIMESTAMP") {
			continue
		}
		a, err := s.record(text)
		if err != nil {
			return Arrival{}, fmt.Errorf("line %d: %w", s.line, err)
		}
		return a, nil
	}
	if err := s.scanner.Err(); err != nil {
		return Arrival{}, fmt.Errorf("after line %d: %w", s.line, err)
	}
	return Arrival{}, io.EOF
}

func (s *azure) record(text string) (Arrival, error) {
	fields := strings.Split(text, ",")
	if len(fields) != 3 {
		return Arrival{}, fmt.Errorf("%d fields, want TIMESTAMP,ContextTokens,GeneratedTokens", len(fields))
	}
	at, err := time.Parse("2006-01-02 15:04:05.9999999", fields[0])
	if err != nil {
		return Arrival{}, fmt.Errorf("reading the time: %w", err)
	}
	in, err := tokens(fields[1])
	if err != nil {
		return Arrival{}, fmt.Errorf("reading ContextTokens: %w", err)
	}
	out, err := tokens(fields[2])
	if err != nil {
		return Arrival{}, fmt.Errorf("reading GeneratedTokens: %w", err)
	}
	if s.first.IsZero() {
		s.first = at
	}
	s.last = max(s.last, at.Sub(s.first))
	return Arrival{At: s.last, Prompt: []Piece{{ID: mix(s.seed ^ mix(uint64(s.line))), Tokens: in}}, Output: out}, nil
}

// tokens reads a count; what an engine would refuse as empty becomes one token.
func tokens(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxTokens {
		return 0, fmt.Errorf("%.40q is not a number of tokens", s)
	}
	return max(n, 1), nil
}
