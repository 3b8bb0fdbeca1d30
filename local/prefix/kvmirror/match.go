package kvmirror

import (
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/perfmodel"
)

// AnsweredPrompt is a prompt with what its answer reported about it.
type AnsweredPrompt struct {
	// Blocks are the prompt's block hashes, and PromptBytes is the length of the text that they cover.
	Blocks      []uint64
	PromptBytes int64
	// PromptTokens is the prompt's length as counted by the engine.
	PromptTokens int64
	// CachedTokens is how many prompt tokens were cached; -1 when the engine does not report it.
	CachedTokens int64
	// OutputTokens is the length of the answer, in tokens.
	OutputTokens int64
	// SentAt is when the prompt was sent to the worker, and FirstByteAt when the first byte of its answer arrived.
	SentAt, FirstByteAt time.Time
}

// MatchGrace is how long after the first byte a prompt's blocks may appear among the events; after that they count as
// not stored. Ambiguous chains also wait that long for other prompts to take theirs.
const MatchGrace = 2 * time.Second

const (
	// MatchDelay is the minimum wait after the first byte, so that the events of that engine step have arrived.
	MatchDelay = 50 * time.Millisecond
	// lateChainWindow is how long after the first byte a chain may appear and still be linked where none appeared in
	// time. Later chains belong to other prompts.
	lateChainWindow = 500 * time.Millisecond
	// maxTiedChains is the maximum number of equally possible chains that a prompt may be linked to.
	maxTiedChains = 8
)

// MaxSilentMatches is how many consecutive prompts may find no event at all before the event stream counts as silent.
const MaxSilentMatches = 3

const (
	// maxPromptBlocks bounds the length of a prompt that is linked, in engine blocks.
	maxPromptBlocks    = 1 << 17
	defaultBlockTokens = 64
)

// pendingMatch is an answered prompt that waits for its events.
type pendingMatch struct {
	blocks                     []uint64
	promptBytes                int64
	promptTokens               int64
	cachedTokens               int64
	outputTokens               int64
	cachedBlocks, promptBlocks int32 // engine blocks that were cached (-1 when unknown), and that the prompt has
	maxBlocksAtEnd             int32 // engine blocks that prompt and answer have together
	sentMillis                 int64 // milliseconds
	readyMillis, dueMillis     int64
	lastMillis                 int64 // latest time at which its chain may appear
	chainsFound                [maxTiedChains]uint64
	chainCount                 int // chains that fit; found has the first of them
	rivalPrompts               int // other prompts that also fit those chains, for an answer that did not report cached tokens
}

// Results of a look for a prompt's chain.
type chainMatch uint8

const (
	chainNone      chainMatch = iota // no chain fits
	chainSeveral                     // one of a few fits, and each is present
	chainUnproven                    // one fits, but the prompt may have been cached whole and the chain be another prompt's
	chainAmbiguous                   // several may fit
	chainNotNeeded                   // nothing had to be stored, or the prompt exceeds maxPromptBlocks
	chainLinked
)

// MatchPrompt links an answered prompt to the engine's blocks, now or within MatchGrace.
func (m *Mirror) MatchPrompt(c *AnsweredPrompt, now time.Time) {
	if len(c.Blocks) == 0 || c.PromptBytes <= 0 || c.PromptTokens <= 0 {
		return
	}
	first := c.FirstByteAt
	if first.Before(c.SentAt) {
		first = c.SentAt
	}
	n := pendingMatch{
		blocks: c.Blocks, promptBytes: c.PromptBytes, promptTokens: min(c.PromptTokens, perfmodel.MaxRequestTokens), cachedTokens: min(c.CachedTokens, c.PromptTokens), outputTokens: max(0, min(c.OutputTokens, perfmodel.MaxRequestTokens)),
		sentMillis: c.SentAt.UnixMilli(), readyMillis: first.Add(MatchDelay).UnixMilli(), dueMillis: first.Add(MatchGrace).UnixMilli(), lastMillis: first.Add(lateChainWindow).UnixMilli(),
	}
	if now.UnixMilli() >= n.readyMillis && m.blockTokens != 0 {
		if v := m.matchChain(&n); !v.mayResolveLater() {
			m.outcomeCounts[v.toOutcome()]++
			return
		}
	}
	if len(m.pendingMatches) >= m.maxMatches {
		m.pendingMatches = append(m.pendingMatches[:0], m.pendingMatches[1:]...) // the oldest stays a guess
	}
	n.blocks = append([]uint64(nil), c.Blocks...)
	m.pendingMatches = append(m.pendingMatches, n)
}

// SettleMatches resolves the pending matches; call it a few times a second. silent is true when the worker
// sends no more events while its answers report cached tokens.
func (m *Mirror) SettleMatches(now time.Time) (silent bool) {
	t := now.UnixMilli()
	for again := true; again; { // a chain that one prompt takes is no longer available to others
		again = false
		kept := m.pendingMatches[:0]
		for i := range m.pendingMatches {
			c := m.pendingMatches[i]
			if t < c.readyMillis {
				kept = append(kept, c)
				continue
			}
			v := m.matchChain(&c)
			if v.mayResolveLater() && t < c.dueMillis {
				kept = append(kept, c)
				continue
			}
			o := m.concludeMatch(&c, v)
			again = again || o == chainLinked.toOutcome()
			m.outcomeCounts[o]++
		}
		clear(m.pendingMatches[len(kept):])
		m.pendingMatches = kept
	}
	return m.silentMatches >= MaxSilentMatches
}

// concludeMatch ends a match that need not or cannot wait any longer.
func (m *Mirror) concludeMatch(c *pendingMatch, v chainMatch) MatchOutcome {
	switch {
	case v == chainNone:
		return m.refuteMatch(c)
	case c.cachedBlocks < 0 && c.chainCount > 0 && c.rivalPrompts >= c.chainCount: // each of the chains may be another prompt's, and this prompt may have been cached before
		return MatchAmbiguous
	case v == chainSeveral && m.backrefsUsed+c.chainCount*int(c.promptBlocks)*2 <= 2*m.maxBlocks:
		m.linkAllChains(c)
		return MatchShared
	case v == chainUnproven:
		m.takeChain(c, c.chainsFound[0])
		return chainLinked.toOutcome()
	}
	return v.toOutcome()
}

// refuteMatch removes a prompt that was never stored from the worker's guesses, except for what the answer reported as
// cached. The result is unknown in three cases: no event arrived in the time window, the events have been evicted, or
// another prompt with the same beginning may have stored the blocks (engines report blocks that two requests store at
// once only once).
func (m *Mirror) refuteMatch(c *pendingMatch) MatchOutcome {
	if m.lastEventAt < c.sentMillis {
		m.silentMatches++
		return MatchNoEvents
	}
	if c.cachedTokens < 0 || m.newestLostStore >= c.sentMillis || m.lastEvictedAt >= c.sentMillis || m.mayHidePrompt(c) {
		return MatchAmbiguous
	}
	for i, h := range c.blocks {
		if c.tokensThroughBlock(i) > float64(c.cachedTokens) && m.owner.RemoveGuess(h) {
			m.owner.RemoveHolder(h)
		}
	}
	return MatchRefuted
}

// mayHidePrompt reports whether a longer chain that was stored in the match's time window could contain its prompt.
func (m *Mirror) mayHidePrompt(c *pendingMatch) bool {
	return slices.ContainsFunc(m.storeRing, func(r storeEvent) bool {
		return r.storedAt >= c.sentMillis && r.storedAt <= c.lastMillis && (r.depth == 0 || r.depth >= c.promptBlocks && r.depth-r.blockCount < c.promptBlocks)
	})
}

// tokensThroughBlock returns where byte block i ends, in tokens of that prompt.
func (c *pendingMatch) tokensThroughBlock(i int) float64 {
	return float64(blockhash.BytesCovered(i+1)) * float64(c.promptTokens) / float64(c.promptBytes)
}

// matchChain finds the engine's chain for a prompt and links the byte blocks to it.
func (m *Mirror) matchChain(c *pendingMatch) chainMatch {
	size := int64(m.blockTokens)
	if size == 0 {
		size = defaultBlockTokens // no event has arrived yet
	}
	c.promptBlocks, c.cachedBlocks = int32(min(c.promptTokens/size, maxPromptBlocks+1)), -1
	if c.cachedTokens >= 0 {
		c.cachedBlocks = int32(min(c.cachedTokens/size, maxPromptBlocks+1))
	}
	if c.promptBlocks == 0 || c.promptBlocks > maxPromptBlocks || c.cachedBlocks >= c.promptBlocks {
		return chainNotNeeded
	}
	c.maxBlocksAtEnd = int32(min((c.promptTokens+c.outputTokens)/size, 2*maxPromptBlocks))
	if m.newestLostStore >= c.sentMillis {
		return chainAmbiguous
	}
	for _, until := range [...]int64{c.readyMillis, c.lastMillis, math.MaxInt64} {
		if seen := m.findChains(c, until); seen != (fitCounts{}) {
			return m.resolveMatch(c, seen, until)
		}
	}
	return chainNone
}

// resolveMatch decides among the chains of the first time span that has any. An engine reports a prompt's blocks before
// it answers, so later chains belong to other prompts.
func (m *Mirror) resolveMatch(c *pendingMatch, seen fitCounts, until int64) chainMatch {
	if c.cachedBlocks < 0 && c.chainCount > 0 {
		c.rivalPrompts = max(c.rivalPrompts, m.countRivalPrompts(c))
	}
	switch {
	case until > c.lastMillis || seen[fitUnknownStart]+seen[fitEvicted] > 0 || c.chainCount > maxTiedChains:
		return chainAmbiguous
	case c.chainCount > 1:
		return chainSeveral
	case c.cachedBlocks < 0 && (c.rivalPrompts > 0 || !m.isStoredInTime(c.chainsFound[0], c)):
		return chainUnproven
	}
	m.takeChain(c, c.chainsFound[0])
	return chainLinked
}

// linkAllChains links the prompt's byte blocks to every chain that may be theirs. They are dropped with the first block
// of any of these chains, so they are never kept longer than they are present. Where the beginning of any chain is
// gone, nothing is linked.
func (m *Mirror) linkAllChains(c *pendingMatch) {
	from := int32(1)
	for _, key := range c.chainsFound[:c.chainCount] {
		_, low := m.chainPath(key, c.promptBlocks)
		from = max(from, low)
	}
	for _, key := range c.chainsFound[:c.chainCount] {
		path, _ := m.chainPath(key, c.promptBlocks)
		m.linkChain(c, path, from, false)
	}
}

// chainPath returns the chain that ends with the block of that key, by depth, as slots plus one, and the depth from
// which on it is present.
func (m *Mirror) chainPath(key uint64, need int32) (path []int32, low int32) {
	path, low = make([]int32, need+1), need+1
	for depth := need; depth > 0 && key != 0; depth-- {
		n := m.byKey[key]
		if n == 0 {
			break
		}
		path[depth], low = n, depth
		key = m.blocks[n-1].parent
	}
	return path, low
}

// takeChain takes a chain that certainly belongs to the prompt, and links the prompt's byte blocks to it.
func (m *Mirror) takeChain(c *pendingMatch, key uint64) {
	path, low := m.chainPath(key, c.promptBlocks)
	for depth := low; depth <= c.promptBlocks; depth++ {
		b := &m.blocks[path[depth]-1]
		if b.root == 0 && b.depth == 0 { // a stub: its depth is known now
			b.depth = depth
		}
		if b.unmatchedStores > 0 && (depth == c.promptBlocks || c.cachedBlocks >= 0 && depth > c.cachedBlocks) {
			b.unmatchedStores--
		}
	}
	m.linkChain(c, path, low, true)
}

// linkChain links the prompt's byte blocks to a chain, from depth low on.
func (m *Mirror) linkChain(c *pendingMatch, path []int32, low int32, sure bool) {
	from := int32(0)
	for i, h := range c.blocks {
		to := int32(min(math.Ceil(c.tokensThroughBlock(i)/float64(m.blockTokens)), maxPromptBlocks+1))
		if to > c.promptBlocks {
			return
		}
		if from+1 >= low && !m.linkByteBlock(h, int32(blockhash.BlockSize(i)/blockhash.FineSize), path[from+1:to+1], sure) {
			return
		}
		from = to
	}
}

// linkByteBlock links one byte block to the engine blocks of a path.
func (m *Mirror) linkByteBlock(h uint64, size int32, path []int32, sure bool) bool {
	if len(path) == 0 {
		return true // two byte blocks within one engine block: the first represents both
	}
	for _, n := range path {
		if !m.addBackref(&m.blocks[n-1], h) {
			return false
		}
	}
	last := &m.blocks[path[len(path)-1]-1]
	if !m.linked.MoveToFront(h) {
		if !m.owner.RemoveGuess(h) {
			m.owner.AddHolder(h)
		}
		m.linked.AddFront(h, size)
	}
	n, _ := m.linked.SlotOf(h)
	for int(n) > len(m.chainEnds) {
		m.chainEnds = append(m.chainEnds, chainEnd{})
	}
	if m.chainEnds[n-1] = (chainEnd{}); sure {
		m.chainEnds[n-1] = chainEnd{key: last.key, depth: m.depthOf(last)}
	}
	m.owner.TrimLists()
	return true
}
