package gpu

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
