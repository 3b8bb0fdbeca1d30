package capacity

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// MaxLandmarks is the number of prefix lengths whose hashes sketches contain.
const MaxLandmarks = 18

// landmarkEnds are these lengths, in bytes of the prompt. Neighbours differ by at most a factor of 2, and above 3 KiB
// of 1.5. They are block ends of the local tier's prefix index.
var landmarkEnds = [MaxLandmarks]int{
	1 << 10, 2 << 10, 3 << 10, 4 << 10, 6 << 10, 8 << 10, 12 << 10, 16 << 10, 24 << 10, 32 << 10, 48 << 10, 64 << 10,
	96 << 10, 128 << 10, 192 << 10, 256 << 10, 384 << 10, 512 << 10,
}

// LandmarkEnd returns the length of landmark i, in bytes of the prompt.
func LandmarkEnd(i int) int { return landmarkEnds[i] }

// AppendLandmarks appends the hashes of the landmarks of a prompt, the shortest first. Each hash covers the prompt from
// its beginning. All instances that compare sketches share the secret. Prompts of different owners or models have
// different hashes for the same text, and without the secret a hash cannot be tested against a known prompt.
func AppendLandmarks(dst []uint64, secret uint64, owner, model string, prompt []byte) []uint64 {
	if len(prompt) < landmarkEnds[0] {
		return dst
	}
	h := chainHash(chainHash(secret, xxhash.Sum64String(owner)), xxhash.Sum64String(model))
	from := 0
	for _, end := range landmarkEnds {
		if len(prompt) < end {
			break
		}
		h = chainHash(h, xxhash.Sum64(prompt[from:end]))
		dst, from = append(dst, h), end
	}
	return dst
}

func chainHash(prev, next uint64) uint64 {
	hi, lo := bits.Mul64(prev^0x9e3779b97f4a7c15, next^0xd1b54a32d192ed03)
	return hi ^ lo ^ bits.RotateLeft64(next, 23)
}
