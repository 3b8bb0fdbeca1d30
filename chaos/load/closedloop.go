package load

import (
	"io"
	"math/rand/v2"
	"time"
)

// clientStagger is the minimum time over which the clients of a closed loop start, so that they do not send in waves.
const clientStagger = 10 * time.Second

// loopClient is one client of a closed loop, which runs one session (tree or chat) after the other.
type loopClient struct {
	id         uint64
	number     int // index among all
	region     int32
	rng        *rand.Rand
	begunCount uint64 // sessions started so far
}

// nextID is the ID of the client's next session.
func (c *loopClient) nextID() uint64 {
	c.begunCount++
	return mixBits(c.id ^ mixBits(c.begunCount))
}

// closedLoop is the first requests of a closed loop's clients.
type closedLoop struct {
	roots []*Request
}

func (l *closedLoop) NextRequest() (*Request, error) {
	if len(l.roots) == 0 {
		return nil, io.EOF
	}
	r := l.roots[0]
	l.roots = l.roots[1:]
	return r, nil
}

// makeRequest makes one of a client's requests, limited to the workload's maximum lengths.
func (c *loopClient) makeRequest(w *Workload, course continuation, session uint64, turn int, prompt []Piece, output int, answer uint64) *Request {
	r := &Request{
		Region: c.region, Tenant: int32(c.number), Session: session, Turn: int32(turn),
		Prompt: prompt, PromptTokens: countPromptTokens(prompt), Output: output, Answer: answer, continuation: course,
	}
	w.capLengths(r)
	return r
}

func countPromptTokens(prompt []Piece) int {
	a := Arrival{Prompt: prompt}
	return a.PromptTokens()
}
