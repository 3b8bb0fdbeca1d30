package gpu

import (
	"testing"

	"pgregory.net/rapid"
)

// drawText makes texts of few names and lengths, so that many of them begin alike.
func drawText(t *rapid.T, label string) []Piece {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Piece {
		return Piece{ID: rapid.Uint64Range(1, 3).Draw(t, "id"), Tokens: rapid.SampledFrom([]int{5, 16, 40, 64}).Draw(t, "tokens")}
	}), 0, 5).Draw(t, label)
}

// TestHashesAreEqualWhereTextsAre: of two texts, as many hashes are equal as whole blocks are shared, and no more.
func TestHashesAreEqualWhereTextsAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawText(t, "a"), drawText(t, "b")
		size := rapid.SampledFrom([]int{1, 16, 64}).Draw(t, "block")
		x, y := Hashes(nil, a, size), Hashes(nil, b, size)
		if len(x) != Tokens(a)/size || len(y) != Tokens(b)/size {
			t.Fatalf("%d and %d hashes for %d and %d tokens in blocks of %d", len(x), len(y), Tokens(a), Tokens(b), size)
		}
		common := Common(a, b)
		for i := range min(len(x), len(y)) {
			if equal := x[i] == y[i]; equal != ((i+1)*size <= common) {
				t.Fatalf("block %d of %d tokens: equal %v, where %d tokens are shared of\n%v\n%v", i, size, equal, common, a, b)
			}
		}
	})
}

// TestCutPlaces: the hash at one place is the same however the text before is cut.
func TestCutPlaces(t *testing.T) {
	text := []Piece{{1, 100}, {2, 0}, {3, 300}}
	fine := Hashes(nil, text, 16)
	uneven := Cut(nil, text, func(i int) int { return []int{64, 128, 192, 0}[i] })
	if len(uneven) != 3 || uneven[0] != fine[3] || uneven[1] != fine[11] || uneven[2] != fine[23] {
		t.Errorf("cut at 64, 192 and 384 tokens: %x, of %x", uneven, fine)
	}
	if without := Hashes(nil, []Piece{{1, 100}, {3, 300}}, 16); without[24] != fine[24] {
		t.Error("an empty piece changes the text")
	}
}
