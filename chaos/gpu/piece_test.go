package gpu

import (
	"testing"

	"pgregory.net/rapid"
)

// drawText draws texts of few ids and lengths, so that many have common prefixes.
func drawText(t *rapid.T, label string) []Piece {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Piece {
		return Piece{ID: rapid.Uint64Range(1, 3).Draw(t, "id"), Tokens: rapid.SampledFrom([]int{5, 16, 40, 64}).Draw(t, "tokens")}
	}), 0, 5).Draw(t, label)
}

// TestBlockHashesAreEqualForSharedText: two texts have as many equal hashes as common full blocks.
func TestBlockHashesAreEqualForSharedText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawText(t, "a"), drawText(t, "b")
		size := rapid.SampledFrom([]int{1, 16, 64}).Draw(t, "block")
		x, y := HashBlocks(nil, a, size), HashBlocks(nil, b, size)
		if len(x) != CountTokens(a)/size || len(y) != CountTokens(b)/size {
			t.Fatalf("%d and %d hashes for %d and %d tokens in blocks of %d", len(x), len(y), CountTokens(a), CountTokens(b), size)
		}
		common := CountCommonTokens(a, b)
		for i := range min(len(x), len(y)) {
			if equal := x[i] == y[i]; equal != ((i+1)*size <= common) {
				t.Fatalf("block %d of %d tokens: equal %v, where %d tokens are shared of\n%v\n%v", i, size, equal, common, a, b)
			}
		}
	})
}

// TestHashAtOnePlaceIgnoresBlockSizes: the hash at an offset is the same with any blocks before it.
func TestHashAtOnePlaceIgnoresBlockSizes(t *testing.T) {
	text := []Piece{{1, 100}, {2, 0}, {3, 300}}
	fine := HashBlocks(nil, text, 16)
	uneven := HashVariableBlocks(nil, text, func(i int) int { return []int{64, 128, 192, 0}[i] })
	if len(uneven) != 3 || uneven[0] != fine[3] || uneven[1] != fine[11] || uneven[2] != fine[23] {
		t.Errorf("cut at 64, 192 and 384 tokens: %x, of %x", uneven, fine)
	}
	if without := HashBlocks(nil, []Piece{{1, 100}, {3, 300}}, 16); without[24] != fine[24] {
		t.Error("an empty piece changes the text")
	}
}
