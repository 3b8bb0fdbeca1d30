package inflight

import "github.com/spillway-lb/spillway/local/blockhash"

// PromptPrefix is the beginning of a request's prompt as block hashes, its tokens per byte, and whether most of it is
// cached on the chosen worker.
type PromptPrefix struct {
	Blocks        []uint64
	TokensPerByte float64
	MostlyCached  bool
}

// sharedPrefixes are the prefixes of prompts running on one worker. An engine with prefix caching holds the blocks of
// sequences that begin alike once and counts references (vLLM's and SGLang's block references). The sum of their
// reservations is then more than what they hold together. A fleet whose prompts all start with the same 4,000 tokens
// would otherwise seem full at a fraction of its capacity.
type sharedPrefixes struct {
	byHash     blockhash.Table // slots in blocks of each block in use
	blocks     []sharedBlock
	freeBlocks []int32 // unused slots
	// sharedTokens are tokens that are reserved more than once.
	sharedTokens int64
}

// sharedBlock is one block of running prompts.
type sharedBlock struct {
	users  int32
	tokens int32 // tokens, as computed for its first user
}

// addPrompt adds a running prompt.
func (s *sharedPrefixes) addPrompt(p PromptPrefix) {
	for i, h := range p.Blocks {
		fresh, n := int32(len(s.blocks)), len(s.freeBlocks)
		if n > 0 {
			fresh = s.freeBlocks[n-1]
		}
		at, isNew := s.byHash.GetOrPut(h, fresh)
		if !isNew {
			b := &s.blocks[at]
			b.users++
			s.sharedTokens += int64(b.tokens)
			continue
		}
		b := sharedBlock{users: 1, tokens: int32(float64(blockhash.BlockSize(i)) * p.TokensPerByte)}
		if n > 0 {
			s.freeBlocks, s.blocks[at] = s.freeBlocks[:n-1], b
		} else {
			s.blocks = append(s.blocks, b)
		}
	}
}

// removePrompt removes a running prompt.
func (s *sharedPrefixes) removePrompt(blocks []uint64) {
	for _, h := range blocks {
		at, ok := s.byHash.Get(h)
		if !ok {
			continue
		}
		b := &s.blocks[at]
		if b.users--; b.users > 0 {
			s.sharedTokens -= int64(b.tokens)
			continue
		}
		s.byHash.DeleteKey(h)
		s.freeBlocks = append(s.freeBlocks, at)
	}
}

// blockUsers returns how many running prompts have a block.
func (s *sharedPrefixes) blockUsers(h uint64) int32 {
	if at, ok := s.byHash.Get(h); ok {
		return s.blocks[at].users
	}
	return 0
}

// tokensInCommon returns how many tokens of a prompt running prompts hold. A running prompt that has a block has all
// blocks before it.
func (s *sharedPrefixes) tokensInCommon(p PromptPrefix) int64 {
	if s.byHash.Len() == 0 {
		return 0
	}
	from, to := 0, len(p.Blocks)
	for from < to {
		mid := (from + to) / 2
		if s.blockUsers(p.Blocks[mid]) > 0 {
			from = mid + 1
		} else {
			to = mid
		}
	}
	return int64(float64(blockhash.BytesCovered(from)) * p.TokensPerByte)
}
