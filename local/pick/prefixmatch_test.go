package pick

import (
	"testing"

	"github.com/spillway-lb/spillway/local/blockhash"
	"github.com/spillway-lb/spillway/local/prefix"
)

// TestOnlyLongestHolderIsCreditedWithSuffix: the answer is cached where the whole of the last turn is.
func TestOnlyLongestHolderIsCreditedWithSuffix(t *testing.T) {
	v, _ := newTestFleet(3, "A100")
	blocks := blockhash.AppendBlockHashes(nil, blockhash.DeriveSeed(1, "acme", "m"), make([]byte, 16<<10))
	v.Index.InsertPrompt(0, blocks[:20])
	v.Index.InsertPrompt(1, blocks[:10])
	v.SuffixHits = &prefix.SuffixHitRate{}
	q := PlacementQuery{PromptTokens: 4096, PromptBytes: 16 << 10, OutputTokens: 100, Blocks: blocks}
	ask := func() (had [3]int64, out Choice) {
		out, ok := ChooseWorker(&q, v, testStart, testRNG(), nil)
		if !ok {
			t.Fatal("no worker was chosen")
		}
		for i := range had {
			had[i] = int64(v.placement.match.tokensOn(int32(i)))
		}
		return had, out
	}
	plain, _ := ask()
	for range 100 {
		v.SuffixHits.LearnSuffix(true, 2000, 2500, 3000)
	}
	had, out := ask()
	want := plain[0] + (q.PromptTokens-1-plain[0])/2
	if had[0] != want || had[1] != plain[1] || had[2] != 0 {
		t.Errorf("cached tokens %v, and %v before anything was learned", had, plain)
	}
	if out.Index != 0 || out.CachedTokens != want || out.KnownTokens != plain[0] || !out.LongestHolder || !out.SoleHolder {
		t.Errorf("the choice is %+v", out)
	}
	v.Index.InsertPrompt(2, blocks[:20])
	if had, out = ask(); had[0] != plain[0] || out.SoleHolder || out.KnownTokens != out.CachedTokens {
		t.Errorf("with two holders, cached tokens are %v and the choice is %+v", had, out)
	}
}
