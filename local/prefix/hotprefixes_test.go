package prefix

import (
	"bytes"
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/local/blockhash"
)

// landmarksAndBlocks returns a prompt's landmarks, as the regional tier sees it, and its blocks, as the index sees it.
func landmarksAndBlocks(text string) (marks, blocks []uint64) {
	return capacity.AppendLandmarks(nil, 7, "acme", "m", []byte(text)), blockhash.AppendBlockHashes(nil, blockhash.DeriveSeed(9, "acme", "m"), []byte(text))
}

func paddedText(head, tail string, size int) string {
	return head + string(bytes.Repeat([]byte(tail), size/len(tail)+1))[:size-len(head)]
}

// Every landmark is the end of a block.
func TestEveryLandmarkEndsABlock(t *testing.T) {
	for i := range capacity.MaxLandmarks {
		end := int64(capacity.LandmarkEnd(i))
		if n := blockhash.BlocksThrough(end); blockhash.BytesCovered(n) != end {
			t.Errorf("landmark %d ends at %d, block %d at %d", i, end, n, blockhash.BytesCovered(n))
		}
	}
}

// A system prompt that many sessions share and then continue differently: TopPrefixes lists the shared prefix once, by
// its last landmark, and each session by its own.
func TestTopPrefixesAreTheMostValuable(t *testing.T) {
	h, x, now := NewHotPrefixes(), NewIndex(1<<20), time.Unix(1000, 0)
	shared := paddedText("system ", "be brief and kind; ", 4096)
	for i := range 10 {
		text := paddedText(shared+fmt.Sprintf("session %d ", i), "and then? ", 16<<10)
		marks, blocks := landmarksAndBlocks(text)
		x.InsertPrompt(0, blocks)
		h.RecordPrompt(marks, blocks, int64(len(text)/4), int64(len(text)), now)
	}
	got := map[uint64]int64{}
	for _, p := range h.TopPrefixes(x, 32) {
		got[p.Hash] = p.Tokens
	}
	if len(got) != 11 {
		t.Errorf("%d prefixes are listed, want the 10 sessions and the shared prefix: %v", len(got), got)
	}
	marks, _ := landmarksAndBlocks(shared)
	if got[marks[len(marks)-1]] != 1024 {
		t.Errorf("the shared prefix is listed with %d tokens", got[marks[len(marks)-1]])
	}
	x.ForgetWorker(0)
	if s := h.TopPrefixes(x, 32); len(s) != 0 {
		t.Errorf("prefixes that no worker has cached are listed: %v", s)
	}
}

// For any input, the listed prefixes are valid and the counts are bounded.
func TestTopPrefixesAreValidAndBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, x, now := NewHotPrefixes(), NewIndex(1<<18), time.Unix(1000, 0)
		for range rapid.IntRange(0, 80).Draw(t, "requests") {
			head := fmt.Sprintf("%03d", rapid.IntRange(0, 60).Draw(t, "session"))
			text := paddedText(head, rapid.SampledFrom([]string{"abc", "defg"}).Draw(t, "tail"), rapid.IntRange(8, 40<<10).Draw(t, "size"))
			marks, blocks := landmarksAndBlocks(text)
			x.InsertPrompt(int32(rapid.IntRange(0, 2).Draw(t, "worker")), blocks)
			h.RecordPrompt(marks, blocks, int64(rapid.IntRange(0, 1e6).Draw(t, "tokens")), int64(len(text)), now)
			now = now.Add(time.Duration(rapid.IntRange(-1, 100).Draw(t, "seconds")) * time.Second)
		}
		m := &capacity.ModelCapacity{Name: "m", Prefixes: h.TopPrefixes(x, capacity.MaxPrefixes)}
		s := capacity.Summary{Path: capacity.Path{Region: "r", Zone: "z", Instance: "l"}, Models: []*capacity.ModelCapacity{m}}
		if _, err := capacity.EncodeSummary(&s); err != nil {
			t.Fatal(err)
		}
		if len(h.byLandmark) > maxHotPrefixes {
			t.Fatalf("%d prefixes are kept", len(h.byLandmark))
		}
	})
}

// TestManySimilarPrefixesStayInBound: among prefixes of equal worth some are evicted too.
func TestManySimilarPrefixesStayInBound(t *testing.T) {
	h, now := NewHotPrefixes(), time.Unix(1000, 0)
	_, blocks := landmarksAndBlocks(paddedText("a", "abc", 2048))
	for mark := range uint64(maxHotPrefixes + 50) {
		h.RecordPrompt([]uint64{mark + 1}, blocks, 512, 2048, now)
		if len(h.byLandmark) > maxHotPrefixes || h.byLandmark[mark+1] == nil {
			t.Fatalf("after %d prefixes %d are kept, the newest: %v", mark+1, len(h.byLandmark), h.byLandmark[mark+1] != nil)
		}
	}
}

// TestClockStepBackKeepsPrefixHits: a hit recorded at a later time than now counts in full.
func TestClockStepBackKeepsPrefixHits(t *testing.T) {
	h, now := NewHotPrefixes(), time.Unix(1000, 0)
	marks, blocks := landmarksAndBlocks(paddedText("a", "abc", 2048))
	for _, back := range []time.Duration{0, time.Hour, 40 * time.Hour} {
		h.RecordPrompt(marks, blocks, 512, 2048, now.Add(-back))
	}
	if e := h.byLandmark[marks[0]]; math.Abs(e.log2Hits-math.Log2(3)) > 1e-9 {
		t.Errorf("after three requests log2Hits is %v", e.log2Hits)
	}
}

// TestPrefixHitsDecay: the decayed count at any later time is the sum of the hits, each halved every hotHalfLife.
func TestPrefixHitsDecay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, now, hits := NewHotPrefixes(), time.Unix(1000, 0), map[uint64]float64{}
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			gap := rapid.IntRange(0, 90).Draw(t, "seconds")
			now = now.Add(time.Duration(gap) * time.Second)
			for m := range hits {
				hits[m] *= math.Pow(0.5, float64(gap)/hotHalfLife.Seconds())
			}
			marks, blocks := landmarksAndBlocks(paddedText(fmt.Sprintf("%03d", rapid.IntRange(0, 8).Draw(t, "session")), "abc", 2048))
			h.RecordPrompt(marks, blocks, 512, 2048, now)
			for _, m := range marks {
				hits[m]++
			}
		}
		age := now.Sub(h.startedAt).Seconds() / hotHalfLife.Seconds()
		for m, e := range h.byLandmark {
			if got := math.Exp2(e.log2Hits - age); math.Abs(got-hits[m]) > 1e-6*hits[m] {
				t.Fatalf("after %v it has %v hits, want %v", now.Sub(h.startedAt), got, hits[m])
			}
			if want := e.log2Hits + math.Log2(float64(e.tokens)); e.log2Worth != want {
				t.Fatalf("its worth is %v, want %v", e.log2Worth, want)
			}
		}
		if len(h.byLandmark) == 0 {
			t.Fatal("nothing was noted")
		}
	})
}

func BenchmarkRecordPrompt(b *testing.B) {
	h, now := NewHotPrefixes(), time.Unix(1000, 0)
	marks, blocks := landmarksAndBlocks(paddedText("a", "bcd ", 16<<10))
	b.ReportAllocs()
	for b.Loop() {
		h.RecordPrompt(marks, blocks, 4096, 16<<10, now)
	}
}

// TestHotHeapPopsInOrder compares the order of pops with that of sorting.
func TestHotHeapPopsInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q hotHeap
		for i := range rapid.IntRange(1, 60).Draw(t, "entries") {
			q = append(q, hotEntry{landmark: uint64(i), log2Worth: float64(rapid.IntRange(0, 9).Draw(t, "worth"))})
		}
		q = rapid.Permutation(q).Draw(t, "order")
		want := slices.Clone(q)
		slices.SortFunc(want, func(a, b hotEntry) int {
			return cmp.Or(cmp.Compare(b.log2Worth, a.log2Worth), cmp.Compare(a.landmark, b.landmark))
		})
		heap.Init(&q)
		for i := range want {
			if got := q.popTop(); got != want[i] {
				t.Fatalf("number %d is %+v, want %+v", i, got, want[i])
			}
		}
	})
}
