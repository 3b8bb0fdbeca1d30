package gpu

// Piece is a part of a prompt or an answer: the first Tokens tokens of the text with this ID. A longer piece with the
// same ID begins with the shorter one.
type Piece struct {
	ID     uint64
	Tokens int
}

// CountTokens is the length of a text made of pieces.
func CountTokens(text []Piece) int {
	n := 0
	for _, p := range text {
		n += p.Tokens
	}
	return n
}

// CountCommonTokens is the length of the common prefix of two texts, in tokens.
func CountCommonTokens(a, b []Piece) int {
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

// HashBlocks appends one hash for each full block of the given number of tokens. A block's hash covers everything
// before it too, so that equal hashes mean equal prefixes.
func HashBlocks(dst []uint64, text []Piece, block int) []uint64 {
	return HashVariableBlocks(dst, text, func(int) int { return block })
}

// HashVariableBlocks is HashBlocks for blocks of different lengths: size returns the length in tokens of the i-th
// one, 0 after the last. The hash at an offset of a text does not depend on the blocks before it.
func HashVariableBlocks(dst []uint64, text []Piece, size func(i int) int) []uint64 {
	var chain uint64
	begin, blocks, length := 0, 0, size(0)
	end := length // of the next block
	for _, p := range text {
		if p.Tokens <= 0 {
			continue
		}
		key := pieceKey(chain, p.ID)
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

// pieceKey is the state of a hash chain that continues with the piece of this ID.
func pieceKey(chain, id uint64) uint64 { return splitMix64(chain ^ splitMix64(id)) }

// hashAt is the hash of everything up to the piece's n-th token, n from 1 on.
func hashAt(key uint64, n int) uint64 { return splitMix64(key + uint64(n)) }

// pieceCutter splits a text as HashBlocks does, with blocks of the cache's size.
type pieceCutter struct {
	chainHash       uint64
	position, total int
}

func (c *pieceCutter) cutPiece(parts []blockSpan, id uint64, tokens int) []blockSpan {
	if tokens <= 0 {
		return parts
	}
	key, end := pieceKey(c.chainHash, id), c.position+tokens
	if blocks := end/BlockTokens - c.position/BlockTokens; blocks > 0 {
		parts = append(parts, blockSpan{key: key, firstTokens: int32(BlockTokens - c.position%BlockTokens), blocks: int32(blocks)})
	}
	c.chainHash, c.position = hashAt(key, tokens), end
	return parts
}
