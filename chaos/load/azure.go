package load

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// maxTraceTokens is the largest prompt or output length in a trace.
const maxTraceTokens = 10_000_000

// ReadAzure reads the format of the Azure LLM inference traces: a header line, then
// TIMESTAMP,ContextTokens,GeneratedTokens. Prompts share nothing, because the trace has no prefixes. Errors name the
// line.
func ReadAzure(r io.Reader, seed uint64) ArrivalSource {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 0, 4096), 4096)
	return &azureReader{scanner: scanner, seed: seed}
}

type azureReader struct {
	scanner   *bufio.Scanner
	seed      uint64
	line      int
	startTime time.Time
	lastAt    time.Duration
}

func (s *azureReader) NextArrival() (Arrival, error) {
	for s.scanner.Scan() {
		s.line++
		text := strings.TrimSpace(s.scanner.Text())
		if text == "" || s.line == 1 && strings.HasPrefix(text, "TIMESTAMP") {
			continue
		}
		a, err := s.parseRecord(text)
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

func (s *azureReader) parseRecord(text string) (Arrival, error) {
	fields := strings.Split(text, ",")
	if len(fields) != 3 {
		return Arrival{}, fmt.Errorf("%d fields, want TIMESTAMP,ContextTokens,GeneratedTokens", len(fields))
	}
	at, err := time.Parse("2006-01-02 15:04:05.9999999", fields[0])
	if err != nil {
		return Arrival{}, fmt.Errorf("reading the time: %w", err)
	}
	in, err := parseTokens(fields[1])
	if err != nil {
		return Arrival{}, fmt.Errorf("reading ContextTokens: %w", err)
	}
	out, err := parseTokens(fields[2])
	if err != nil {
		return Arrival{}, fmt.Errorf("reading GeneratedTokens: %w", err)
	}
	if s.startTime.IsZero() {
		s.startTime = at
	}
	s.lastAt = max(s.lastAt, at.Sub(s.startTime))
	return Arrival{At: s.lastAt, Prompt: []Piece{{ID: mixBits(s.seed ^ mixBits(uint64(s.line))), Tokens: in}}, Output: out}, nil
}

// parseTokens parses a count; 0, which an engine would refuse, becomes 1.
func parseTokens(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxTraceTokens {
		return 0, fmt.Errorf("%.40q is not a number of tokens", s)
	}
	return max(n, 1), nil
}
