package consensus

import (
	"testing"
	"time"
)

// TestRestoredStateIsNewerThanBothHistories: a restored state has a greater generation, index, term and versions than
// the archive and than the cluster into which it is restored.
func TestRestoredStateIsNewerThanBothHistories(t *testing.T) {
	at := time.Unix(1_000_000_000, 0)
	low := &State{Generation: 5, Index: 10, Term: 2, SpecVersion: 3, Spec: []byte("a")}
	high := &State{Generation: 7, Index: 9000, Term: 40, SpecVersion: 30, Spec: []byte("b")}
	ahead := &State{Generation: uint64(at.Unix()) + 50, Index: 10, Term: 2, SpecVersion: 3, Spec: []byte("c")}
	for _, c := range []struct{ archive, now *State }{{low, high}, {high, low}, {low, &State{}}, {ahead, low}, {low, ahead}} {
		got := c.archive.mergeForRestore(c.now, "op", at)
		for _, was := range []*State{c.archive, c.now} {
			if got.Generation <= was.Generation || got.Index <= was.Index || got.Term < was.Term || got.SpecVersion <= was.SpecVersion {
				t.Errorf("restored as %d/%d/%d/%d, after %d/%d/%d/%d", got.Generation, got.Index, got.Term, got.SpecVersion,
					was.Generation, was.Index, was.Term, was.SpecVersion)
			}
		}
		if got.Generation < uint64(at.Unix()) || string(got.Spec) != string(c.archive.Spec) {
			t.Errorf("restored as %+v", got)
		}
	}
}
