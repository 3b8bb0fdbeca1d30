package pick

import (
	"slices"
	"testing"
	"time"
)

// TestABlockStoredAnewIsNotTheRunsAnyMore: another prompt's chain was stored in our answer's time, taken by that prompt,
// and then one of its blocks went and came back in somebody else's store. That one has not been taken, and our claim must
// not be linked with it: it was not there when our prompt was computed.
func TestABlockStoredAnewIsNotTheRunsAnyMore(t *testing.T) {
	const size = 128 // tokens of a block: as many bytes as one of ours has
	at := func(ms int) time.Time { return t0.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		name           string
		tokens, output int // ours
		gone           int // which block of the other's four
	}{
		{"the last of the run", 4 * size, 0, 3},
		{"one inside the run", 2 * size, 2 * size, 1},
	} {
		for _, anew := range []bool{false, true} {
			x := NewIndex(8 << 20)
			x.Follow(0)
			theirs, ours := newPrompt("a", size, 4*size), newPrompt("b", size, c.tokens)
			x.Insert(0, ours.blocks)
			x.Store(0, &Stored{Hashes: theirs.chain, BlockTokens: size}, at(10))
			x.Claim(0, &Claim{
				Blocks: theirs.blocks, Bytes: int64(len(theirs.text)), Prompt: int64(theirs.tokens), Sent: at(0), First: at(20),
			}, at(100))
			if got := x.Claimed(0); got[Linked] != 1 {
				t.Fatalf("%s: the other's claim: %v", c.name, got)
			}
			if anew {
				x.Remove(0, 0, theirs.chain[c.gone:c.gone+1], at(700))
				x.Store(0, &Stored{Hashes: theirs.chain[c.gone : c.gone+1], Parent: theirs.chain[c.gone-1], HasParent: true, BlockTokens: size}, at(800))
			}
			// All of ours but the last block was cached, the answer says.
			if len(ours.blocks) == 0 {
				t.Fatalf("%s: our prompt has no block", c.name)
			}
			x.Claim(0, &Claim{
				Blocks: ours.blocks, Bytes: int64(len(ours.text)), Prompt: int64(c.tokens), Cached: int64(c.tokens - size), Output: int64(c.output),
				Sent: at(0), First: at(20),
			}, at(900))
			for ms := 1000; ms <= 3000; ms += 250 {
				x.Settle(0, at(ms))
			}
			m := x.mirror(0)
			if got := m.claimed[Linked] + m.claimed[Shared]; got != 1 || len(m.claims) != 0 {
				t.Errorf("%s, stored anew %v: %d claims linked and %d left, want the other's alone: %v", c.name, anew, got, len(m.claims), m.claimed)
			}
			if slices.ContainsFunc(ours.blocks, func(h uint64) bool { _, held := m.linked.at.get(h); return held }) {
				t.Errorf("%s, stored anew %v: a block of ours rests on the other's", c.name, anew)
			}
		}
	}
}
