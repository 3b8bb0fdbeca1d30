package gpu

import (
	"encoding/binary"
	"math"
	"time"
)

// cacheJournal collects the changes of the prefix cache in one step.
type cacheJournal struct {
	changes []cacheChange
}

type cacheChangeKind uint8

const (
	blockStored cacheChangeKind = iota
	blockRemoved
	allCleared
)

// cacheChange is the change of one block, or of the whole cache.
type cacheChange struct {
	kind         cacheChangeKind
	hash, parent uint64
	hasParent    bool // it has a parent
}

func (j *cacheJournal) recordStored(hash, parent uint64, child bool) {
	if j != nil {
		j.changes = append(j.changes, cacheChange{blockStored, hash, parent, child})
	}
}

func (j *cacheJournal) recordRemoved(hash uint64) {
	if j != nil {
		j.changes = append(j.changes, cacheChange{kind: blockRemoved, hash: hash})
	}
}

func (j *cacheJournal) recordCleared() {
	if j != nil {
		j.changes = append(j.changes, cacheChange{kind: allCleared})
	}
}

// encodeBatch encodes the changes since the last call as a batch of vLLM's cache events; nil without changes.
func (j *cacheJournal) encodeBatch(array bool, now time.Time) []byte {
	if len(j.changes) == 0 {
		return nil
	}
	var events [][]cacheChange
	for i, c := range j.changes {
		if i > 0 && c.continuesEvent(j.changes[i-1]) {
			events[len(events)-1] = append(events[len(events)-1], c)
			continue
		}
		events = append(events, []cacheChange{c})
	}
	j.changes = j.changes[:0]
	b := append([]byte{}, 0x93, 0xcb)
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(float64(now.UnixMicro())/1e6))
	b = appendCount(b, 0x90, 0xdc, len(events))
	for _, e := range events {
		if array {
			b = appendEventArray(b, e)
		} else {
			b = appendEventMap(b, e)
		}
	}
	return append(b, 0) // data_parallel_rank
}

// continuesEvent reports whether c belongs to the same event as the previous change.
func (c cacheChange) continuesEvent(before cacheChange) bool {
	return c.kind == before.kind && (c.kind == blockRemoved || c.kind == blockStored && c.hasParent && c.parent == before.hash)
}

func appendEventArray(b []byte, e []cacheChange) []byte {
	switch e[0].kind {
	case blockStored:
		b = packText(append(b, 0x98), "BlockStored")
		b = appendParent(appendHashes(b, e), e[0])
		b = append(appendTokens(b, e), BlockTokens, 0xc0)
		return append(packText(b, "GPU"), 0xc0)
	case blockRemoved:
		return packText(appendHashes(packText(append(b, 0x93), "BlockRemoved"), e), "GPU")
	}
	return packText(append(b, 0x91), "AllBlocksCleared")
}

func appendEventMap(b []byte, e []cacheChange) []byte {
	switch e[0].kind {
	case blockStored:
		b = packText(packText(append(b, 0x88), "type"), "BlockStored")
		b = appendHashes(packText(b, "block_hashes"), e)
		b = appendParent(packText(b, "parent_block_hash"), e[0])
		b = appendTokens(packText(b, "token_ids"), e)
		b = append(packText(b, "block_size"), BlockTokens)
		b = append(packText(b, "lora_id"), 0xc0)
		b = packText(packText(b, "medium"), "GPU")
		return append(packText(b, "lora_name"), 0xc0)
	case blockRemoved:
		b = packText(packText(append(b, 0x83), "type"), "BlockRemoved")
		return packText(packText(appendHashes(packText(b, "block_hashes"), e), "medium"), "GPU")
	}
	return packText(packText(append(b, 0x81), "type"), "AllBlocksCleared")
}

func appendHashes(b []byte, e []cacheChange) []byte {
	b = appendCount(b, 0x90, 0xdc, len(e))
	for _, c := range e {
		b = appendHash(b, c.hash)
	}
	return b
}

func appendHash(b []byte, h uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, 0xcf), h)
}

func appendParent(b []byte, c cacheChange) []byte {
	if !c.hasParent {
		return append(b, 0xc0)
	}
	return appendHash(b, c.parent)
}

// appendTokens appends made-up tokens, because prompts are not stored.
func appendTokens(b []byte, e []cacheChange) []byte {
	b = appendCount(b, 0x90, 0xdc, len(e)*BlockTokens)
	for _, c := range e {
		for i := range BlockTokens {
			b = binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(c.hash>>i|0x100))
		}
	}
	return b
}

func appendCount(b []byte, short, long byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, short|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, long), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, long+1), uint32(n))
}

func packText(b []byte, s string) []byte {
	if len(s) < 32 {
		b = append(b, 0xa0|byte(len(s)))
	} else {
		b = append(b, 0xd9, byte(len(s)))
	}
	return append(b, s...)
}
