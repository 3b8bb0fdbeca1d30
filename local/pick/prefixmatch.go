package pick

import (
	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/prefix"
)

// prefixMatch is how much of the current prompt each worker has cached, as far as the index knows.
type prefixMatch struct {
	index        *prefix.Index                  // nil while no worker holds the beginning of the prompt
	tokens       [blockhash.MaxBlocks + 1]int32 // prompt tokens in so many of its blocks
	suffixTokens int32                          // tokens that the longest prefix's holders are expected to have beyond what is known
}

// matchPrompt matches a query's prompt of so many tokens against the index.
func (m *prefixMatch) matchPrompt(v *WorkerView, q *PlacementQuery, prompt int64) {
	m.index = nil
	if v.Index == nil || len(q.Blocks) == 0 || q.PromptBytes <= 0 || !v.Index.MatchBlocks(q.Blocks) {
		return
	}
	m.index = v.Index
	perByte := float64(prompt) / float64(q.PromptBytes)
	for n := range min(len(q.Blocks), blockhash.MaxBlocks) + 1 {
		m.tokens[n] = tokensInBlocks(n, perByte, prompt)
	}
	// Credit the holders of the longest known prefix with the tokens of the rest that they are expected to have cached.
	n := min(m.index.LongestMatchedBlocks(), blockhash.MaxBlocks)
	m.suffixTokens = int32(v.SuffixHits.HitRate(m.index.HasSoleHolder()) * float64(max(prompt-1-int64(m.tokens[n]), 0)))
	m.tokens[n] += m.suffixTokens
}

// tokensInBlocks converts matched blocks to prompt tokens. A hit never covers the last token, which the engine must
// compute.
func tokensInBlocks(blocks int, perByte float64, prompt int64) int32 {
	if blocks == 0 {
		return 0
	}
	return int32(max(0, min(int64(float64(blockhash.BytesCovered(blocks))*perByte), prompt-1, 1<<30)))
}

// tokensOn returns how many tokens of the prompt a worker has cached.
func (m *prefixMatch) tokensOn(id int32) int32 {
	if m.index == nil {
		return 0
	}
	return m.tokensInDepth(m.index.MatchedBlocks(id))
}

// tokensInDepth returns how many tokens of the prompt a worker has cached that matched so many of its blocks.
func (m *prefixMatch) tokensInDepth(blocks int) int32 {
	return m.tokens[min(blocks, blockhash.MaxBlocks)]
}

// holdsLongest reports whether a worker holds the longest known prefix of the prompt.
func (m *prefixMatch) holdsLongest(id int32) bool {
	return m.index != nil && min(m.index.MatchedBlocks(id), blockhash.MaxBlocks) == min(m.index.LongestMatchedBlocks(), blockhash.MaxBlocks)
}

// holdsHalf reports whether a worker holds at least half of a prompt of so many bytes.
func (m *prefixMatch) holdsHalf(id int32, promptBytes int64) bool {
	return m.index != nil && 2*blockhash.BytesCovered(m.index.MatchedBlocks(id)) >= promptBytes
}
