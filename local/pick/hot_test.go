package pick

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// sent is a prompt as the tier above and the index see it.
func sent(text string) (marks, blocks []uint64) {
	return capacity.Landmarks(nil, 7, "acme", "m", []byte(text)), Blocks(nil, Seed(9, "acme", "m"), []byte(text))
}

func textOf(head, tail string, size int) string {
	return head + string(bytes.Repeat([]byte(tail), size/len(tail)+1))[:size-len(head)]
}

// Every landmark is the end of a block.
func TestLandmarksEndBlocks(t *testing.T) {
	for i := range capacity.MaxLandmarks {
		end := int64(capacity.LandmarkEnd(i))
		if n := blocksTo(end); blockEnd(n) != end {
			t.Errorf("landmark %d ends at %d, block %d at %d", i, end, n, blockEnd(n))
		}
	}
}

// A system prompt that many share and sessions that go on in their own way: the sketch names the shared beginning once, by
// its last landmark, and each session by its own.
func TestSketchNamesWhatIsWorthMost(t *testing.T) {
	h, x, now := NewHot(), NewIndex(1<<20), time.Unix(1000, 0)
	shared := textOf("system ", "be brief and kind; ", 4096)
	for i := range 10 {
		text := textOf(shared+fmt.Sprintf("session %d ", i), "and then? ", 16<<10)
		marks, blocks := sent(text)
		x.Insert(0, blocks)
		h.Note(marks, blocks, int64(len(text)/4), int64(len(text)), now)
	}
	got := map[uint64]int64{}
	for _, p := range h.Sketch(x, 32) {
		got[p.Hash] = p.Tokens
	}
	if len(got) != 11 {
		t.Errorf("%d beginnings are named, want the 10 sessions and what they share: %v", len(got), got)
	}
	marks, _ := sent(shared)
	if got[marks[len(marks)-1]] != 1024 {
		t.Errorf("the shared beginning is named with %d tokens", got[marks[len(marks)-1]])
	}
	x.Forget(0)
	if s := h.Sketch(x, 32); len(s) != 0 {
		t.Errorf("what nobody has cached is named: %v", s)
	}
}

// Whatever is noted, the sketch is lawful and what is kept is bounded.
func TestSketchIsLawfulAndBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, x, now := NewHot(), NewIndex(1<<18), time.Unix(1000, 0)
		for range rapid.IntRange(0, 80).Draw(t, "requests") {
			head := fmt.Sprintf("%03d", rapid.IntRange(0, 60).Draw(t, "session"))
			text := textOf(head, rapid.SampledFrom([]string{"abc", "defg"}).Draw(t, "tail"), rapid.IntRange(8, 40<<10).Draw(t, "size"))
			marks, blocks := sent(text)
			x.Insert(int32(rapid.IntRange(0, 2).Draw(t, "worker")), blocks)
			h.Note(marks, blocks, int64(rapid.IntRange(0, 1e6).Draw(t, "tokens")), int64(len(text)), now)
			now = now.Add(time.Duration(rapid.IntRange(-1, 100).Draw(t, "seconds")) * time.Second)
		}
		m := capacity.Model{Name: "m", Prefixes: h.Sketch(x, capacity.MaxPrefixes)}
		s := capacity.Summary{Path: capacity.Path{Region: "r", Zone: "z", Instance: "l"}, Models: []capacity.Model{m}}
		if _, err := capacity.Encode(&s); err != nil {
			t.Fatal(err)
		}
		if len(h.at) > maxHot {
			t.Fatalf("%d beginnings are kept", len(h.at))
		}
	})
}

// TestManyAlikeBeginningsStayInTheBound: of beginnings that are all worth the same some go as well, or none ever would.
func TestManyAlikeBeginningsStayInTheBound(t *testing.T) {
	h, now := NewHot(), time.Unix(1000, 0)
	_, blocks := sent(textOf("a", "abc", 2048))
	for mark := range uint64(maxHot + 50) {
		h.Note([]uint64{mark + 1}, blocks, 512, 2048, now)
		if len(h.at) > maxHot || h.at[mark+1] == nil {
			t.Fatalf("after %d beginnings %d are kept, the newest: %v", mark+1, len(h.at), h.at[mark+1] != nil)
		}
	}
}

// TestAClockThatStepsBackHeatsNothing: what was noted an hour later than now counts as it did.
func TestAClockThatStepsBackHeatsNothing(t *testing.T) {
	h, now := NewHot(), time.Unix(1000, 0)
	marks, blocks := sent(textOf("a", "abc", 2048))
	for _, back := range []time.Duration{0, time.Hour, 40 * time.Hour} {
		h.Note(marks, blocks, 512, 2048, now.Add(-back))
	}
	if e := h.at[marks[0]]; math.Abs(e.heat-math.Log2(3)) > 1e-9 {
		t.Errorf("after three requests its heat is %v", e.heat)
	}
}

// TestHeatIsHitsThatFade: what a beginning's heat says at any later time is its hits, each of which counts half after hotHalf.
func TestHeatIsHitsThatFade(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, now, hits := NewHot(), time.Unix(1000, 0), map[uint64]float64{}
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			gap := rapid.IntRange(0, 90).Draw(t, "seconds")
			now = now.Add(time.Duration(gap) * time.Second)
			for m := range hits {
				hits[m] *= math.Pow(0.5, float64(gap)/hotHalf.Seconds())
			}
			marks, blocks := sent(textOf(fmt.Sprintf("%03d", rapid.IntRange(0, 8).Draw(t, "session")), "abc", 2048))
			h.Note(marks, blocks, 512, 2048, now)
			for _, m := range marks {
				hits[m]++
			}
		}
		age := now.Sub(h.since).Seconds() / hotHalf.Seconds()
		for m, e := range h.at {
			if got := math.Exp2(e.heat - age); math.Abs(got-hits[m]) > 1e-6*hits[m] {
				t.Fatalf("after %v it says %v hits, want %v", now.Sub(h.since), got, hits[m])
			}
			if want := e.heat + math.Log2(float64(e.tokens)); e.worth != want {
				t.Fatalf("its worth is %v, want %v", e.worth, want)
			}
		}
		if len(h.at) == 0 {
			t.Fatal("nothing was noted")
		}
	})
}

func BenchmarkHotNote(b *testing.B) {
	h, now := NewHot(), time.Unix(1000, 0)
	marks, blocks := sent(textOf("a", "bcd ", 16<<10))
	b.ReportAllocs()
	for b.Loop() {
		h.Note(marks, blocks, 4096, 16<<10, now)
	}
}
