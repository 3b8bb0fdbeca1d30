package pick

// Prompt is where a request's prompt begins, how many tokens a byte of it is, and whether most of it is cached where it goes.
type Prompt struct {
	Blocks  []uint64
	PerByte float64
	Home    bool
}

// Beginning is what the query's prompt begins with; nothing where it holds several, or no text that is known.
func (q *Query) Beginning() Prompt {
	if q.Longest > 0 || q.PromptBytes <= 0 || q.PromptTokens <= 0 {
		return Prompt{}
	}
	return Prompt{Blocks: q.Blocks[:min(len(q.Blocks), MaxBlocks)], PerByte: float64(q.PromptTokens) / float64(q.PromptBytes)}
}

// shares are the beginnings of prompts that run on one worker. An engine that caches prefixes holds the blocks of sequences
// that begin alike once and counts who uses them (vLLM's and SGLang's block references), so what is reserved for each
// sequence by itself is more than what they hold together: a fleet whose prompts all start with the same 4,000 tokens
// would be thought full at a fraction of what it can run.
type shares struct {
	at     table // of each block that is used, in blocks
	blocks []block
	free   []int32 // places that nobody uses
	// tokens that are reserved more than once.
	tokens int64
}

// block is one block of running prompts.
type block struct {
	users  int32
	tokens int32 // by the first of its users
}

// add books a running prompt in.
func (s *shares) add(p Prompt) {
	for i, h := range p.Blocks {
		fresh, n := int32(len(s.blocks)), len(s.free)
		if n > 0 {
			fresh = s.free[n-1]
		}
		at, isNew := s.at.enter(h, fresh)
		if !isNew {
			b := &s.blocks[at]
			b.users++
			s.tokens += int64(b.tokens)
			continue
		}
		b := block{users: 1, tokens: int32(float64(BlockSize(i)) * p.PerByte)}
		if n > 0 {
			s.free, s.blocks[at] = s.free[:n-1], b
		} else {
			s.blocks = append(s.blocks, b)
		}
	}
}

// take books it out.
func (s *shares) take(blocks []uint64) {
	for _, h := range blocks {
		at, ok := s.at.get(h)
		if !ok {
			continue
		}
		b := &s.blocks[at]
		if b.users--; b.users > 0 {
			s.tokens -= int64(b.tokens)
			continue
		}
		s.at.drop(h)
		s.free = append(s.free, at)
	}
}

// users are how many of those that run have a block.
func (s *shares) users(h uint64) int32 {
	if at, ok := s.at.get(h); ok {
		return s.blocks[at].users
	}
	return 0
}

// common is how many tokens of a prompt are held by those that run. Who runs with a block runs with all before it.
func (s *shares) common(p Prompt) int64 {
	if s.at.len() == 0 {
		return 0
	}
	from, to := 0, len(p.Blocks)
	for from < to {
		mid := (from + to) / 2
		if s.users(p.Blocks[mid]) > 0 {
			from = mid + 1
		} else {
			to = mid
		}
	}
	return int64(float64(blockEnd(from)) * p.PerByte)
}

// alike is how much less the sequences on a worker hold of its KV cache than is reserved for them, with the request's own
// among them or not, in tokens, as far as its cache has kept what was believed of it.
func (v *View) alike(at int, with bool) int64 {
	s := &v.Ledger.slots[v.gates[at].id].shares
	n := s.tokens
	if with {
		n += s.common(v.q.Beginning())
	}
	return int64(float64(n) * v.lanes[at].hit)
}

// full is how much of a worker's KV cache its sequences hold, as a part of total tokens, at most 1.
func (v *View) full(at int32, total int64) float64 {
	held := v.Ledger.accounts[v.gates[at].id].heldKV() - v.alike(int(at), false)
	return min(float64(max(held, 0))/float64(total), 1)
}
