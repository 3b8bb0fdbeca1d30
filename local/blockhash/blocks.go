// Package blockhash cuts prompts into blocks and hashes them, and has the two collections that are keyed by such hashes.
//
// AppendBlockHashes returns a prompt's chained block hashes: a hash covers all bytes before its block too, so equal
// hashes mean equal beginnings. DeriveSeed makes the hashes of different tenants and models differ. Table maps hashes to
// slots, and LRUList orders them by last use.
//
// The package has no clock, goroutine or lock; each value has one writer.
package blockhash

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// A prompt's prefix is cut at fixed offsets: finely at the start, where most prompts differ, and coarsely further on,
// so that a very long prompt still needs few look-ups. There are 16 blocks of 256 bytes, 28 of 1 KiB, then blocks of 4
// KiB.
const (
	fineBlocks, FineSize     = 16, 256
	middleBlocks, middleSize = 28, 1024
	coarseSize               = 4096
	// MaxBlocks bounds the blocks of a prompt: only its first 512 KiB are hashed.
	MaxBlocks = fineBlocks + middleBlocks + 120
)

// DeriveSeed returns the seed of a chain of hashes. Prompts of different tenants or models never share a hash, even
// with equal text.
func DeriveSeed(secret uint64, tenant, model string) uint64 {
	return ChainHash(ChainHash(secret, xxhash.Sum64String(tenant)), xxhash.Sum64String(model))
}

// AppendBlockHashes appends the chained hashes of the prompt's whole blocks to dst. The hash of a block covers all
// bytes before it too.
func AppendBlockHashes(dst []uint64, seed uint64, prompt []byte) []uint64 {
	h := seed
	for i := range MaxBlocks {
		size := BlockSize(i)
		if len(prompt) < size {
			break
		}
		h = ChainHash(h, xxhash.Sum64(prompt[:size]))
		dst = append(dst, h)
		prompt = prompt[size:]
	}
	return dst
}

// BlockSize is the length of block i in bytes.
func BlockSize(i int) int {
	switch {
	case i < fineBlocks:
		return FineSize
	case i < fineBlocks+middleBlocks:
		return middleSize
	}
	return coarseSize
}

// BytesCovered is the number of bytes that the first n blocks cover.
func BytesCovered(n int) int64 {
	fine := min(n, fineBlocks)
	middle := min(max(n-fineBlocks, 0), middleBlocks)
	coarse := max(n-fineBlocks-middleBlocks, 0)
	return int64(fine*FineSize + middle*middleSize + coarse*coarseSize)
}

func ChainHash(prev, next uint64) uint64 {
	hi, lo := bits.Mul64(prev^0x9e3779b97f4a7c15, next^0xd1b54a32d192ed03)
	return hi ^ lo ^ bits.RotateLeft64(next, 23)
}

// BlocksThrough returns how many blocks end at a landmark.
func BlocksThrough(end int64) int {
	switch {
	case end <= fineBlocks*FineSize:
		return int(end / FineSize)
	case end <= fineBlocks*FineSize+middleBlocks*middleSize:
		return fineBlocks + int((end-fineBlocks*FineSize)/middleSize)
	}
	return fineBlocks + middleBlocks + int((end-fineBlocks*FineSize-middleBlocks*middleSize)/coarseSize)
}
