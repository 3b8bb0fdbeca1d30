package pick

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// A prompt's prefix is cut at fixed places, finely where most prompts differ and coarsely further on, so that a very
// long prompt still costs few look-ups: 16 blocks of 256 bytes, 28 of 1 KiB, then 4 KiB each.
const (
	fineBlocks, fineSize     = 16, 256
	middleBlocks, middleSize = 28, 1024
	coarseSize               = 4096
	// MaxBlocks bounds a prompt's blocks: the first 512 KiB are looked at.
	MaxBlocks = fineBlocks + middleBlocks + 120
)

// Seed starts a chain of hashes. Prompts of different tenants or models never share one, whatever their text.
func Seed(secret uint64, tenant, model string) uint64 {
	return chain(chain(secret, xxhash.Sum64String(tenant)), xxhash.Sum64String(model))
}

// Blocks appends the chained hashes of the prompt's whole blocks to dst: the hash of a block covers everything before it.
func Blocks(dst []uint64, seed uint64, prompt []byte) []uint64 {
	h := seed
	for i := range MaxBlocks {
		size := BlockSize(i)
		if len(prompt) < size {
			break
		}
		h = chain(h, xxhash.Sum64(prompt[:size]))
		dst = append(dst, h)
		prompt = prompt[size:]
	}
	return dst
}

// BlockSize is the length of block i in bytes.
func BlockSize(i int) int {
	switch {
	case i < fineBlocks:
		return fineSize
	case i < fineBlocks+middleBlocks:
		return middleSize
	}
	return coarseSize
}

// blockEnd is the number of bytes that the first n blocks cover.
func blockEnd(n int) int64 {
	fine := min(n, fineBlocks)
	middle := min(max(n-fineBlocks, 0), middleBlocks)
	coarse := max(n-fineBlocks-middleBlocks, 0)
	return int64(fine*fineSize + middle*middleSize + coarse*coarseSize)
}

func chain(prev, next uint64) uint64 {
	hi, lo := bits.Mul64(prev^0x9e3779b97f4a7c15, next^0xd1b54a32d192ed03)
	return hi ^ lo ^ bits.RotateLeft64(next, 23)
}
