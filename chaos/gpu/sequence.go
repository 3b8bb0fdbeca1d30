package gpu

import "time"

// EngineRequest is one request to an engine.
type EngineRequest struct {
	// PrefixHashes holds the chained hash of each full block of the prompt: equal up to i means equal content up to
	// there. The part of the prompt without hashes is private.
	PrefixHashes []uint64
	// Prompt is the prompt's text, instead of PrefixHashes. It is truncated to PromptTokens; a remainder of
	// PromptTokens beyond it is private.
	Prompt []Piece
	// AnswerID is the ID of the answer's text, so that a repetition of it hits the cache. 0 keeps the answer private.
	AnswerID uint64
	// PromptTokens is the prompt's length, at least 1.
	PromptTokens int
	// OutputTokens is how many tokens to generate, at least 1.
	OutputTokens int
	// Owner is the caller's own handle, returned by Sequence.Owner.
	Owner any
}

// sequenceState is the state of a sequence.
type sequenceState uint8

const (
	stateArriving sequenceState = iota // in the API server
	stateWaiting
	stateRunning
	stateDone
	stateCancelled
)

// Sequence is one request inside an engine. It follows the concurrency rules of the engine.
type Sequence struct {
	request         EngineRequest
	state           sequenceState
	computedTokens  int // tokens whose keys and values are in the cache
	generated       int
	cachedTokens    int // prompt tokens that were in the cache when first scheduled
	scheduledTokens int // tokens in the current step
	table           blockTable
	started         bool
	preemptions     int
	readyAt         time.Time
	arrivedAt       time.Time
	scheduledAt     time.Time
	firstTokenAt    time.Time
	endedAt         time.Time
}

// Owner returns the request's own handle.
func (s *Sequence) Owner() any { return s.request.Owner }

// GeneratedTokens returns how many tokens have been generated.
func (s *Sequence) GeneratedTokens() int { return s.generated }

// IsDone reports whether every token has been generated.
func (s *Sequence) IsDone() bool { return s.state == stateDone }

// CachedTokens returns how many of the prompt's tokens were in the prefix cache.
func (s *Sequence) CachedTokens() int { return s.cachedTokens }

// PromptTokens returns the prompt's length.
func (s *Sequence) PromptTokens() int { return s.request.PromptTokens }

// Preemptions returns how often the sequence lost its blocks to an older one.
func (s *Sequence) Preemptions() int { return s.preemptions }

// EventTimes returns when the request arrived, was first scheduled, got its first token and ended, in engine time;
// zero for events that have not happened.
func (s *Sequence) EventTimes() (arrived, scheduled, first, ended time.Time) {
	return s.arrivedAt, s.scheduledAt, s.firstTokenAt, s.endedAt
}

// contextTokens is the number of tokens that must be in the cache to generate the next one.
func (s *Sequence) contextTokens() int { return s.request.PromptTokens + s.generated }

// uncomputedTokens is how many of them are not in the cache yet. One left after the first token is a decode.
func (s *Sequence) uncomputedTokens() int { return s.contextTokens() - s.computedTokens }

func (s *Sequence) isDecoding() bool { return s.generated > 0 && s.uncomputedTokens() == 1 }

// splitMix64 is the finalizer of splitmix64: it spreads counters over all 64 bits.
func splitMix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// blocksFor returns how many blocks hold this many tokens.
func blocksFor(tokens int) int { return (tokens + BlockTokens - 1) / BlockTokens }
