package capacity

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// MaxLandmarks is the number of places at which prompts' beginnings are named in sketches.
const MaxLandmarks = 18

// landmarkEnds are those places, in bytes of the prompt: no two neighbours are farther apart than a factor of two, and above
// 3 KiB than one of one and a half. They are ends of blocks of the local tier's index.
var landmarkEnds = [MaxLandmarks]int{
	1 << 10, 2 << 10, 3 << 10, 4 << 10, 6 << 10, 8 << 10, 12 << 10, 16 << 10, 24 << 10, 32 << 10, 48 << 10, 64 << 10,
	96 << 10, 128 << 10, 192 << 10, 256 << 10, 384 << 10, 512 << 10,
}

// LandmarkEnd is how many bytes of the prompt landmark i covers.
func LandmarkEnd(i int) int { return landmarkEnds[i] }

// AppendLandmarks appends the hashes by which sketches name the beginnings of a prompt, the shortest first. Each covers all
// before it. The secret is what all who compare sketches share; prompts of different owners or models never share a hash,
// whatever their text, and without the secret nobody can test whether a prompt is among those that a sketch names.
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
