package gpu

import "time"

// Request is what an engine is asked to do.
type Request struct {
	// Prefix holds the chained hash of each full block of the prompt: equal up to i means equal content up to there.
	// Missing hashes make the rest of the prompt private.
	Prefix []uint64
	// Prompt is the prompt's text, instead of Prefix. It may be longer than PromptTokens, which cut it; what PromptTokens
	// has beyond it is private.
	Prompt []Piece
	// Answer is the ID of the answer's text, so that what repeats it hits the cache. 0 keeps the answer private.
	Answer uint64
	// PromptTokens is the prompt's length, at least 1.
	PromptTokens int
	// OutputTokens is how many tokens to make, at least 1.
	OutputTokens int
	// Owner is the caller's own handle, returned untouched by Sequence.Owner.
	Owner any
}

// state says where a sequence is.
type state uint8

const (
	arriving state = iota // on its way through the API server
	waiting
	running
	done
	cancelled
)

// Sequence is one request inside an engine. Its methods may be called only where the engine's may.
type Sequence struct {
	req       Request
	state     state
	computed  int // tokens whose keys and values are in the cache
	generated int
	cached    int // prompt tokens that were in the cache when first scheduled
	scheduled int // tokens in the step under way
	held      holding
	started   bool
	preempted int
	ready     time.Time
	arrived   time.Time
	begun     time.Time
	first     time.Time
	ended     time.Time
}

// Owner returns the request's own handle.
func (s *Sequence) Owner() any { return s.req.Owner }

// Generated returns how many tokens have been made.
func (s *Sequence) Generated() int { return s.generated }

// Done reports whether every token has been made.
func (s *Sequence) Done() bool { return s.state == done }

// Cached returns how many of the prompt's tokens were in the prefix cache.
func (s *Sequence) Cached() int { return s.cached }

// PromptTokens returns the prompt's length.
func (s *Sequence) PromptTokens() int { return s.req.PromptTokens }

// Preemptions returns how often the sequence lost its blocks to an older one.
func (s *Sequence) Preemptions() int { return s.preempted }

// Times returns when the request arrived, was first scheduled, made its first token and ended, in engine time; zero
// where it has not come to that.
func (s *Sequence) Times() (arrived, scheduled, first, ended time.Time) {
	return s.arrived, s.begun, s.first, s.ended
}

// tokens is the length of what must be in the cache to make the next token.
func (s *Sequence) tokens() int { return s.req.PromptTokens + s.generated }

// left is how many of them are not there yet. One left after the first token is a decode.
func (s *Sequence) left() int { return s.tokens() - s.computed }

func (s *Sequence) decoding() bool { return s.generated > 0 && s.left() == 1 }

// mix is the finaliser of splitmix64: it spreads counters over all 64 bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// blocksFor returns how many blocks hold this many tokens.
func blocksFor(tokens int) int { return (tokens + BlockTokens - 1) / BlockTokens }
