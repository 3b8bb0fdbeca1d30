package prefix

import (
	"slices"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/local/prefix/kvmirror"
)

// TestReStoredBlockLeavesEarlierStoreEvent: another prompt's chain was stored during our answer and taken by that
// prompt. Then one of its blocks was removed and stored again by a third prompt. That store is not taken by any prompt,
// but our prompt must not be linked to it: the block was not present when our prompt was computed.
func TestReStoredBlockLeavesEarlierStoreEvent(t *testing.T) {
	const size = 128 // tokens of a block: as many bytes as one of ours has
	at := func(ms int) time.Time { return testStart.Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		name           string
		tokens, output int // of our prompt
		gone           int // which of the other prompt's four blocks is removed
	}{
		{"the last of the run", 4 * size, 0, 3},
		{"one inside the run", 2 * size, 2 * size, 1},
	} {
		for _, again := range []bool{false, true} {
			x := NewIndex(8 << 20)
			x.EnableExactMode(0)
			theirs, ours := newTestPrompt("a", size, 4*size), newTestPrompt("b", size, c.tokens)
			x.InsertPrompt(0, ours.blocks)
			x.ApplyStored(0, &kvmirror.StoredBlocks{Hashes: theirs.chain, BlockTokens: size}, at(10))
			x.MatchPrompt(0, &kvmirror.AnsweredPrompt{
				Blocks: theirs.blocks, PromptBytes: int64(len(theirs.text)), PromptTokens: int64(theirs.tokens), SentAt: at(0), FirstByteAt: at(20),
			}, at(100))
			if got := x.MatchOutcomes(0); got[kvmirror.MatchLinked] != 1 {
				t.Fatalf("%s: the other prompt's match: %v", c.name, got)
			}
			if again {
				x.ApplyRemoved(0, 0, theirs.chain[c.gone:c.gone+1], at(700))
				x.ApplyStored(0, &kvmirror.StoredBlocks{Hashes: theirs.chain[c.gone : c.gone+1], Parent: theirs.chain[c.gone-1], HasParent: true, BlockTokens: size}, at(800))
			}
			// The answer reports all of our prompt but the last block as cached.
			if len(ours.blocks) == 0 {
				t.Fatalf("%s: our prompt has no block", c.name)
			}
			x.MatchPrompt(0, &kvmirror.AnsweredPrompt{
				Blocks: ours.blocks, PromptBytes: int64(len(ours.text)), PromptTokens: int64(c.tokens), CachedTokens: int64(c.tokens - size), OutputTokens: int64(c.output),
				SentAt: at(0), FirstByteAt: at(20),
			}, at(900))
			for ms := 1000; ms <= 3000; ms += 250 {
				x.SettleMatches(0, at(ms))
			}
			m := x.mirrorOf(0)
			if got := m.Outcomes()[kvmirror.MatchLinked] + m.Outcomes()[kvmirror.MatchShared]; got != 1 || m.CountPending() != 0 {
				t.Errorf("%s, stored again %v: %d prompts linked and %d pending, want only the other prompt linked: %v", c.name, again, got, m.CountPending(), m.Outcomes())
			}
			if slices.ContainsFunc(ours.blocks, m.HasLinked) {
				t.Errorf("%s, stored again %v: a block of our prompt is linked to the other prompt's chain", c.name, again)
			}
		}
	}
}
