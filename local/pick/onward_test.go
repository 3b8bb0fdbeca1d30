package pick

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

func TestOnwardLearnsWhatFollowsIsCached(t *testing.T) {
	var none *Onward
	if none.Part(true) != 0 {
		t.Fatal("nobody has learned anything, and something is expected")
	}
	var o Onward
	for range 300 {
		o.Learn(true, 1000, 1400, 1500)  // an answer is cached too
		o.Learn(false, 4000, 4000, 5000) // and nothing beyond a shared beginning
		o.Learn(true, 1000, 100, 1500)   // what is gone says nothing
		o.Learn(true, 1000, 1010, 1010)  // nor does what has no rest
	}
	if a, b := o.Part(true), o.Part(false); math.Abs(a-0.8) > 1e-6 || b != 0 {
		t.Fatalf("%v of what follows is expected behind a beginning that one holds, %v behind one that many do", a, b)
	}
	for range 500 {
		o.Learn(true, 1000, 1000, 1500) // things have changed
	}
	if a := o.Part(true); a > 0.02 {
		t.Fatalf("%v is still expected", a)
	}
}

func TestOnwardIsAPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o Onward
		number := rapid.Int64Range(-1<<50, 1<<50)
		for range rapid.IntRange(1, 50).Draw(t, "n") {
			o.Learn(rapid.Bool().Draw(t, "alone"), number.Draw(t, "known"), number.Draw(t, "cached"), number.Draw(t, "prompt"))
			for _, alone := range []bool{false, true} {
				if p := o.Part(alone); !(p >= 0 && p <= 1) {
					t.Fatalf("%v of it is expected", p)
				}
			}
		}
	})
}

// TestOnlyWhoHoldsMostIsCreditedWithTheRest: what was answered lies where the whole of the last turn does.
func TestOnlyWhoHoldsMostIsCreditedWithTheRest(t *testing.T) {
	v, _ := fleet(3, "A100")
	blocks := Blocks(nil, Seed(1, "acme", "m"), make([]byte, 16<<10))
	v.Index.Insert(0, blocks[:20])
	v.Index.Insert(1, blocks[:10])
	v.Onward = &Onward{}
	q := Query{PromptTokens: 4096, PromptBytes: 16 << 10, OutputTokens: 100, Blocks: blocks}
	ask := func() (had [3]int64, out Verdict) {
		out, ok := Choose(&q, v, t0, testRNG(), nil)
		if !ok {
			t.Fatal("nobody was chosen")
		}
		for i := range had {
			had[i] = int64(v.held(int32(i)))
		}
		return had, out
	}
	plain, _ := ask()
	for range 100 {
		v.Onward.Learn(true, 2000, 2500, 3000)
	}
	had, out := ask()
	want := plain[0] + (q.PromptTokens-1-plain[0])/2
	if had[0] != want || had[1] != plain[1] || had[2] != 0 {
		t.Errorf("they are believed to have %v, and had %v before anything was learned", had, plain)
	}
	if out.Index != 0 || out.Cached != want || out.Known != plain[0] || !out.Furthest || !out.Alone {
		t.Errorf("the verdict is %+v", out)
	}
	v.Index.Insert(2, blocks[:20])
	if had, out = ask(); had[0] != plain[0] || out.Alone || out.Known != out.Cached {
		t.Errorf("now that two hold it they have %v and the verdict is %+v", had, out)
	}
}
