package openai

import "github.com/cespare/xxhash/v2"

// BlockBytes is the grain of prefix hashes, in bytes of the raw prompt: about 128 tokens.
const BlockBytes = 512

// Blocks appends the chained hashes of prompt's whole blocks to dst and returns it, at most max of them. Each hash
// stands for everything up to the end of its block, so two prompts share a prefix exactly as far as their hashes agree.
// The salt keeps tenants apart: one must not learn from timing what another asked.
func Blocks(dst []uint64, salt string, prompt []byte, max int) []uint64 {
	h := xxhash.Sum64String(salt)
	for i := 0; i+BlockBytes <= len(prompt) && len(dst) < max; i += BlockBytes {
		h = (h ^ xxhash.Sum64(prompt[i:i+BlockBytes])) * 0x9E3779B97F4A7C15
		h ^= h >> 29
		dst = append(dst, h)
	}
	return dst
}
