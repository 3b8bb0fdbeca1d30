package gpu

// Piece is a part of a prompt or of an answer: the first so many tokens of the text that ID names. A longer piece begins
// as a shorter one with the same ID does.
type Piece struct {
	ID     uint64
	Tokens int
}

// Tokens is the length of a text made of pieces.
func Tokens(text []Piece) int {
	n := 0
	for _, p := range text {
		n += p.Tokens
	}
	return n
}

// Common is how many tokens two texts share from the first on.
func Common(a, b []Piece) int {
	n := 0
	for i := range min(len(a), len(b)) {
		if a[i].ID != b[i].ID {
			return n
		}
		n += min(a[i].Tokens, b[i].Tokens)
		if a[i].Tokens != b[i].Tokens {
			return n
		}
	}
	return n
}

// Hashes appends one hash for each whole block of so many tokens. The hash of a block covers everything before it too,
// so that equal hashes mean equal prefixes.
func Hashes(dst []uint64, text []Piece, block int) []uint64 {
	return Cut(dst, text, func(int) int { return block })
}

// Cut is Hashes for blocks of unlike lengths: size returns the length in tokens of the i-th one, 0 after the last. The
// hash at one place of a text is the same however the text before it is cut.
func Cut(dst []uint64, text []Piece, size func(i int) int) []uint64 {
	var chain uint64
	begin, blocks, length := 0, 0, size(0)
	end := length // of the next block
	for _, p := range text {
		if p.Tokens <= 0 {
			continue
		}
		key := into(chain, p.ID)
		for length > 0 && end <= begin+p.Tokens {
			dst = append(dst, hashAt(key, end-begin))
			blocks++
			length = size(blocks)
			end += length
		}
		chain, begin = hashAt(key, p.Tokens), begin+p.Tokens
	}
	return dst
}

// into is the state of a chain of hashes that goes on with the piece of this ID.
func into(chain, id uint64) uint64 { return mix(chain ^ mix(id)) }

// hashAt is the hash of everything up to the piece's n-th token, n from 1 on.
func hashAt(key uint64, n int) uint64 { return mix(key + uint64(n)) }
