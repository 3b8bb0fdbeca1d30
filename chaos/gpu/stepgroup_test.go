package gpu

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestFastForwardEqualsSingleSteps: grouped steps end when the single ones do, to the nanosecond, and the observable
// state of the engine is the same at every time.
func TestFastForwardEqualsSingleSteps(t *testing.T) {
	profile := lookupProfile(t, "H100", "Llama-3.1-8B", 1)
	type asked struct {
		at   time.Duration
		r    EngineRequest
		stop time.Duration // canceled then; 0 never
	}
	rapid.Check(t, func(t *rapid.T) {
		p := profile
		p.Blocks = rapid.IntRange(20, 300).Draw(t, "blocks")
		limits := EngineLimits{
			MaxBatchedTokens: rapid.IntRange(16, 600).Draw(t, "budget"), MaxSeqs: rapid.IntRange(1, 12).Draw(t, "seqs"),
		}
		seed, noisy := rapid.Uint64().Draw(t, "seed"), rapid.Bool().Draw(t, "noisy")
		host := rapid.SampledFrom([]int{0, 100}).Draw(t, "host")
		var list []asked
		var at time.Duration
		for range rapid.IntRange(1, 25).Draw(t, "requests") {
			at += time.Duration(rapid.IntRange(0, 900).Draw(t, "ms")) * time.Millisecond
			in := rapid.IntRange(1, 16*p.Blocks/2).Draw(t, "in")
			a := asked{at: at, r: EngineRequest{PromptTokens: in, OutputTokens: rapid.IntRange(1, 16*p.Blocks/2).Draw(t, "out")}}
			if rapid.Bool().Draw(t, "shared") {
				a.r.Prompt, a.r.AnswerID = drawText(t, "text"), rapid.Uint64Range(0, 3).Draw(t, "answer")
			}
			if rapid.IntRange(0, 4).Draw(t, "patience") == 0 {
				a.stop = at + time.Duration(rapid.IntRange(1, 3000).Draw(t, "for"))*time.Millisecond
			}
			list = append(list, a)
		}
		slow := at/2 + 1
		run := func(fast bool) (seen []string) {
			c := EngineConfig{Profile: p, Limits: limits, HostBlocks: host, FastForward: fast}
			if noisy {
				c.Rand = rand.New(rand.NewPCG(seed, 0))
			}
			e, err := NewEngine(c)
			if err != nil {
				t.Fatal(err)
			}
			until := func(now time.Time) {
				for next, ok := e.NextEvent(); ok && !next.After(now); next, ok = e.NextEvent() {
					e.AdvanceTo(next)
					checkEngine(t, e)
				}
				e.SettleTo(now)
				checkEngine(t, e)
			}
			type event struct {
				at time.Duration
				do func(now time.Time)
			}
			var events []event
			all := make([]*Sequence, len(list))
			for i, a := range list {
				events = append(events, event{a.at, func(now time.Time) {
					if all[i], err = e.Submit(now, a.r); err != nil {
						t.Fatal(err)
					}
				}})
				if a.stop > 0 {
					events = append(events, event{a.stop, func(time.Time) { e.Cancel(all[i]) }})
				}
			}
			events = append(events, event{slow, func(time.Time) { e.SetSlowdown(2) }})
			slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
			for _, x := range events {
				now := epoch.Add(x.at)
				until(now)
				seen = append(seen, fmt.Sprintf("%v %+v %+v", x.at, e.Gauges(), e.Counters()))
				x.do(now)
			}
			until(epoch.Add(time.Hour * 24))
			for i, s := range all {
				arrived, begun, first, ended := s.EventTimes()
				seen = append(seen, fmt.Sprint(i, arrived, begun, first, ended, s.GeneratedTokens(), s.CachedTokens(), s.Preemptions()))
			}
			return append(seen, fmt.Sprintf("%+v %+v", e.Gauges(), e.Counters()))
		}
		single, together := run(false), run(true)
		for i := range single {
			if single[i] != together[i] {
				t.Fatalf("single steps:\n%s\ntogether:\n%s", single[i], together[i])
			}
		}
	})
}

// TestOnlyFirstGroupedStepLoadsFromHost: a preempted sequence returns with all but its last token in host memory, so
// its first step is a decode and starts a group. The load counts once.
func TestOnlyFirstGroupedStepLoadsFromHost(t *testing.T) {
	p := lookupProfile(t, "H100", "Llama-3.1-8B", 1)
	p.Blocks = 257
	run := func(fast bool) (ends []time.Time, loaded int) {
		e, err := NewEngine(EngineConfig{
			Profile: p, Limits: EngineLimits{MaxBatchedTokens: 17, MaxSeqs: 3}, HostBlocks: 100, FastForward: fast,
		})
		if err != nil {
			t.Fatal(err)
		}
		var all []*Sequence
		for _, r := range [][2]int{{1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 17}, {1, 1373}, {194, 1396}, {1497, 746}} {
			s, err := e.Submit(epoch, EngineRequest{PromptTokens: r[0], OutputTokens: r[1]})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		for next, ok := e.NextEvent(); ok; next, ok = e.NextEvent() {
			e.AdvanceTo(next)
			if e.load.HostTokens > 0 && e.load.PrefillTokens == 0 {
				loaded++
			}
		}
		for _, s := range all {
			_, _, _, ended := s.EventTimes()
			ends = append(ends, ended)
		}
		return ends, loaded
	}
	single, loads := run(false)
	together, _ := run(true)
	if loads != 1 || !slices.Equal(single, together) {
		t.Errorf("%d steps load and only decode, want 1; single steps end at %v, together at %v", loads, single, together)
	}
}
