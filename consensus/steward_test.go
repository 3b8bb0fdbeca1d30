package consensus

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawStandings are one to nine members in any state, with one leader that looks at them.
func drawStandings(t *rapid.T) []Standing {
	n := rapid.IntRange(1, 9).Draw(t, "members")
	all := make([]Standing, n)
	for i := range all {
		s := &all[i]
		s.Member = Member{ID: fmt.Sprintf("g%d", i+1), Addr: fmt.Sprintf("10.0.0.%d:7400", i+1)}
		s.Voter = i == 0 || rapid.Bool().Draw(t, "votes")
		s.Wants = rapid.Bool().Draw(t, "wants")
		if i == 0 {
			s.Self, s.Leader, s.Asked = true, true, true
			continue
		}
		s.Heard, s.Asked = rapid.Bool().Draw(t, "heard"), rapid.Bool().Draw(t, "asked")
		s.Quiet = time.Duration(rapid.SampledFrom([]int64{0, 1, 9, 10, 30, 3599, 3600, 1 << 20}).Draw(t, "quiet")) * time.Second
		s.Behind = rapid.SampledFrom([]uint64{0, nearEnough, nearEnough + 1, 1 << 40}).Draw(t, "behind")
		s.Steady = time.Duration(rapid.IntRange(0, 20).Draw(t, "steady")) * time.Second
	}
	return all
}

func drawKeep(t *rapid.T) Keep {
	return Keep{
		RemoveAfter: rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "remove after"),
		MinVoters:   rapid.IntRange(0, 9).Draw(t, "min voters"),
	}
}

func count(all []Standing, is func(Standing) bool) (n int) {
	for _, s := range all {
		if is(s) {
			n++
		}
	}
	return n
}

func voterOf(s Standing) bool { return s.Voter }
func wellVoter(s Standing) bool {
	return s.Voter && s.Well()
}

// TestStewardChangesNothingUnsafely runs the steward for as long as it has something to do, in any cluster.
func TestStewardChangesNothingUnsafely(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, all := drawKeep(t), drawStandings(t)
		started := count(all, voterOf)
		silent := count(all, func(s Standing) bool { return s.Voter && !s.Well() })
		removed := 0
		for step := 0; ; step++ {
			m, why := k.next(all)
			if m.Do == "" {
				break
			}
			if step > len(all) || why == "" {
				t.Fatalf("step %d of %d members does %+v because %q", step, len(all), m, why)
			}
			voters, well := count(all, voterOf), count(all, wellVoter)
			if 2*well <= voters {
				t.Fatalf("%+v with %d of %d voters well", m, well, voters)
			}
			at := slices.IndexFunc(all, func(s Standing) bool { return s.ID == m.ID })
			s := all[at]
			switch m.Do {
			case "remove":
				removed++
				if s.Self || s.Leader || !s.Voter || s.Quiet < k.RemoveAfter || k.RemoveAfter == 0 || voters-1 < max(neverFewer, k.MinVoters) {
					t.Fatalf("%+v removes %+v from %d voters", k, s, voters)
				}
				if before, after := well-majority(voters), well-majority(voters-1); after < before {
					t.Fatalf("%d more losses were borne before the removal and %d after", before, after)
				}
				all = slices.Delete(slices.Clone(all), at, at+1)
			case "add":
				if s.Voter || !s.Wants || !s.keepsUp() || s.Steady < steadyAfter || m.Addr != s.Addr || !m.Vote {
					t.Fatalf("gives a vote to %+v by %+v", s, m)
				}
				all = slices.Clone(all)
				all[at].Voter, all[at].Wants = true, false
			default:
				t.Fatalf("does %+v", m)
			}
		}
		if removed > silent || silent <= (started-1)/2 && removed > (started-1)/2 {
			t.Fatalf("removed %d, of %d voters %d were silent", removed, started, silent)
		}
		if removed > 0 && count(all, voterOf) < neverFewer {
			t.Fatalf("left %d voters", count(all, voterOf))
		}
		for _, s := range all { // who stays is told so, and nobody is about to go
			if got := k.Outlook(all, s.ID); got == "is about to be removed" {
				t.Fatalf("%+v: %s, and the steward does nothing", s, got)
			}
		}
	})
}

func majority(voters int) int { return voters/2 + 1 }

// TestStewardWaitsAndThenActs steps through the life of one dead voter, in virtual days.
func TestStewardWaitsAndThenActs(t *testing.T) {
	k := Keep{RemoveAfter: 72 * time.Hour, MinVoters: 3}
	cluster := func(voters int, quiet time.Duration) []Standing {
		all := make([]Standing, voters)
		for i := range all {
			all[i] = Standing{Member: Member{ID: fmt.Sprintf("g%d", i+1), Voter: true, Leader: i == 0}, Self: i == 0}
		}
		all[voters-1].Quiet = quiet
		return all
	}
	for _, c := range []struct {
		voters  int
		quiet   time.Duration
		does    string
		outlook string
	}{
		{4, 5 * time.Second, "", ""},
		{4, time.Minute, "", "will be removed in 71h59m0s"},
		{4, 72*time.Hour - time.Second, "", "will be removed in 1s"},
		{4, 72 * time.Hour, "remove", "is about to be removed"},
		{3, 1000 * time.Hour, "", "stays: fewer than 3 voters would be left: add another first"},
	} {
		all := cluster(c.voters, c.quiet)
		if m, why := k.next(all); m.Do != c.does || m.Do != "" && m.ID != all[c.voters-1].ID {
			t.Errorf("%d voters, one silent for %s: %+v (%s), want %q", c.voters, c.quiet, m, why, c.does)
		}
		if got := k.Outlook(all, all[c.voters-1].ID); got != c.outlook {
			t.Errorf("%d voters, one silent for %s: %q, want %q", c.voters, c.quiet, got, c.outlook)
		}
	}
	all := cluster(4, 100*time.Hour)
	all[1].Quiet = 100 * time.Hour // two of four: nothing could be agreed
	if m, _ := k.next(all); m.Do != "" {
		t.Errorf("without a majority: %+v", m)
	}
	if got := k.Outlook(all, "g4"); got != "stays: no majority of the voters is well" {
		t.Errorf("without a majority: %q", got)
	}
	if m, _ := (Keep{}).next(cluster(5, 1000*time.Hour)); m.Do != "" {
		t.Errorf("with removal off: %+v", m)
	}
}

// TestWantedIsBounded puts members down for votes and strikes them off.
func TestWantedIsBounded(t *testing.T) {
	s := &State{}
	want := func(id, action string) result {
		var r result
		s, r = apply(s, entry{index: s.Index + 1, term: 1, data: must2(command{Kind: kindWant, Path: id, Action: action, At: noon})}, checks{})
		return r
	}
	for i := range maxWanted {
		if r := want(fmt.Sprintf("g%02d", maxWanted-i), actionWant); r.Code != codeOK {
			t.Fatal(r)
		}
	}
	if r := want("one-more", actionWant); r.Code != codeRefused {
		t.Fatalf("one more: %+v", r)
	}
	if r := want("g07", actionWant); r.Code != codeOK || len(s.Wanted) != maxWanted || !slices.IsSorted(s.Wanted) {
		t.Fatalf("again: %+v, %d wanted", r, len(s.Wanted))
	}
	if r := want("g07", actionVoted); r.Code != codeOK || slices.Contains(s.Wanted, "g07") {
		t.Fatalf("struck off: %+v, %q", r, s.Wanted)
	}
	if r := want("", actionWant); r.Code != codeRefused {
		t.Fatalf("without a name: %+v", r)
	}
}

func must2(c command) []byte {
	b, err := encodeCommand(c)
	if err != nil {
		panic(err)
	}
	return b
}
