package consensus

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// drawMemberStatuses draws one to nine members in any state, as seen by one leader.
func drawMemberStatuses(t *rapid.T) []MemberStatus {
	n := rapid.IntRange(1, 9).Draw(t, "members")
	all := make([]MemberStatus, n)
	for i := range all {
		s := &all[i]
		s.Member = Member{ID: fmt.Sprintf("g%d", i+1), Addr: fmt.Sprintf("10.0.0.%d:7400", i+1)}
		s.Voter = i == 0 || rapid.Bool().Draw(t, "votes")
		s.PendingVote = rapid.Bool().Draw(t, "wants")
		if i == 0 {
			s.Self, s.Leader, s.Answered = true, true, true
			continue
		}
		s.Contacted, s.Answered = rapid.Bool().Draw(t, "contacted"), rapid.Bool().Draw(t, "asked")
		s.SinceContact = time.Duration(rapid.SampledFrom([]int64{0, 1, 9, 10, 30, 3599, 3600, 1 << 20}).Draw(t, "quiet")) * time.Second
		s.EntriesBehind = rapid.SampledFrom([]uint64{0, caughtUpEntries, caughtUpEntries + 1, 1 << 40}).Draw(t, "behind")
		s.CaughtUpFor = time.Duration(rapid.IntRange(0, 20).Draw(t, "steady")) * time.Second
	}
	return all
}

func drawAutopilotConfig(t *rapid.T) AutopilotConfig {
	return AutopilotConfig{
		RemoveAfter: rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(t, "remove after"),
		MinVoters:   rapid.IntRange(0, 9).Draw(t, "min voters"),
	}
}

func countMembers(all []MemberStatus, is func(MemberStatus) bool) (n int) {
	for _, s := range all {
		if is(s) {
			n++
		}
	}
	return n
}

func isVoterStatus(s MemberStatus) bool { return s.Voter }
func isReachableVoter(s MemberStatus) bool {
	return s.Voter && s.IsReachable()
}

// TestAutopilotKeepsAMajority runs the autopilot until it has nothing left to do, in any cluster.
func TestAutopilotKeepsAMajority(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, all := drawAutopilotConfig(t), drawMemberStatuses(t)
		started := countMembers(all, isVoterStatus)
		silent := countMembers(all, func(s MemberStatus) bool { return s.Voter && !s.IsReachable() })
		removed := 0
		for step := 0; ; step++ {
			m, why := k.nextChange(all)
			if m.Op == "" {
				break
			}
			if step > len(all) || why == "" {
				t.Fatalf("step %d of %d members does %+v because %q", step, len(all), m, why)
			}
			voters, well := countMembers(all, isVoterStatus), countMembers(all, isReachableVoter)
			if 2*well <= voters {
				t.Fatalf("%+v with %d of %d voters well", m, well, voters)
			}
			at := slices.IndexFunc(all, func(s MemberStatus) bool { return s.ID == m.ID })
			s := all[at]
			switch m.Op {
			case "remove":
				removed++
				if s.Self || s.Leader || !s.Voter || s.SinceContact < k.RemoveAfter || k.RemoveAfter == 0 || voters-1 < max(lowestMinVoters, k.MinVoters) {
					t.Fatalf("%+v removes %+v from %d voters", k, s, voters)
				}
				if before, after := well-majorityOf(voters), well-majorityOf(voters-1); after < before {
					t.Fatalf("%d more losses were borne before the removal and %d after", before, after)
				}
				all = slices.Delete(slices.Clone(all), at, at+1)
			case "add":
				if s.Voter || !s.PendingVote || !s.isCaughtUp() || s.CaughtUpFor < promoteAfter || m.Addr != s.Addr || !m.Voter {
					t.Fatalf("gives a vote to %+v by %+v", s, m)
				}
				all = slices.Clone(all)
				all[at].Voter, all[at].PendingVote = true, false
			default:
				t.Fatalf("does %+v", m)
			}
		}
		if removed > silent || silent <= (started-1)/2 && removed > (started-1)/2 {
			t.Fatalf("removed %d, of %d voters %d were silent", removed, started, silent)
		}
		if removed > 0 && countMembers(all, isVoterStatus) < lowestMinVoters {
			t.Fatalf("left %d voters", countMembers(all, isVoterStatus))
		}
		for _, s := range all { // a kept voter has a reason, and no removal is pending
			if got := k.DescribeOutlook(all, s.ID); got == "is about to be removed" {
				t.Fatalf("%+v: %s, and the autopilot does nothing", s, got)
			}
		}
	})
}

func majorityOf(voters int) int { return voters/2 + 1 }

// TestAutopilotWaitsThenActs steps through the removal of one dead voter, in virtual days.
func TestAutopilotWaitsThenActs(t *testing.T) {
	k := AutopilotConfig{RemoveAfter: 72 * time.Hour, MinVoters: 3}
	cluster := func(voters int, quiet time.Duration) []MemberStatus {
		all := make([]MemberStatus, voters)
		for i := range all {
			all[i] = MemberStatus{Member: Member{ID: fmt.Sprintf("g%d", i+1), Voter: true, Leader: i == 0}, Self: i == 0}
		}
		all[voters-1].SinceContact = quiet
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
		if m, why := k.nextChange(all); m.Op != c.does || m.Op != "" && m.ID != all[c.voters-1].ID {
			t.Errorf("%d voters, one silent for %s: %+v (%s), want %q", c.voters, c.quiet, m, why, c.does)
		}
		if got := k.DescribeOutlook(all, all[c.voters-1].ID); got != c.outlook {
			t.Errorf("%d voters, one silent for %s: %q, want %q", c.voters, c.quiet, got, c.outlook)
		}
	}
	all := cluster(4, 100*time.Hour)
	all[1].SinceContact = 100 * time.Hour // two of four: nothing could be committed
	if m, _ := k.nextChange(all); m.Op != "" {
		t.Errorf("without a majority: %+v", m)
	}
	if got := k.DescribeOutlook(all, "g4"); got != "stays: no majority of the voters is reachable" {
		t.Errorf("without a majority: %q", got)
	}
	if m, _ := (AutopilotConfig{}).nextChange(cluster(5, 1000*time.Hour)); m.Op != "" {
		t.Errorf("with removal off: %+v", m)
	}
}

// TestPendingVotersAreBounded adds pending voters and removes them.
func TestPendingVotersAreBounded(t *testing.T) {
	s := &State{}
	want := func(id, action string) commandResult {
		var r commandResult
		s, r = applyEntry(s, logEntry{index: s.Index + 1, term: 1, data: encodeOrPanic(command{Kind: kindPendingVoter, Path: id, Action: action, At: noon})}, stateChecks{})
		return r
	}
	for i := range maxPendingVoters {
		if r := want(fmt.Sprintf("g%02d", maxPendingVoters-i), actionAddPending); r.Code != codeOK {
			t.Fatal(r)
		}
	}
	if r := want("one-more", actionAddPending); r.Code != codeRefused {
		t.Fatalf("one more: %+v", r)
	}
	if r := want("g07", actionAddPending); r.Code != codeOK || len(s.PendingVoters) != maxPendingVoters || !slices.IsSorted(s.PendingVoters) {
		t.Fatalf("again: %+v, %d wanted", r, len(s.PendingVoters))
	}
	if r := want("g07", actionRemovePending); r.Code != codeOK || slices.Contains(s.PendingVoters, "g07") {
		t.Fatalf("struck off: %+v, %q", r, s.PendingVoters)
	}
	if r := want("", actionAddPending); r.Code != codeRefused {
		t.Fatalf("without a name: %+v", r)
	}
}

func encodeOrPanic(c command) []byte {
	b, err := encodeCommand(c)
	if err != nil {
		panic(err)
	}
	return b
}

// TestContactTimesAge ages contact times with a test clock.
func TestContactTimesAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newContactTimes()
		time.Sleep(time.Minute)
		h.recordContact("g2")
		time.Sleep(10 * time.Second)
		now := time.Now()
		if a, b := h.silentFor("g2", now), h.silentFor("g3", now); a != 10*time.Second || b != 70*time.Second {
			t.Fatalf("g2 is silent for %s and g3, without any contact, for %s", a, b)
		}
		h.retainMembers([]Member{{ID: "g3"}})
		if got := h.silentFor("g2", time.Now()); got != 70*time.Second {
			t.Fatalf("a member that went and came is quiet for %s", got)
		}
	})
}

// TestSpareVotersAreThoseThatCanWrite: the number of spare voters is what exceeds a majority among those that answer,
// keep up and can write.
func TestSpareVotersAreThoseThatCanWrite(t *testing.T) {
	self := MemberStatus{Member: Member{Voter: true}, Self: true}
	ok := MemberStatus{Member: Member{Voter: true}, Answered: true}
	with := func(s MemberStatus, change func(*MemberStatus)) MemberStatus { change(&s); return s }
	full := with(ok, func(s *MemberStatus) { s.DiskFailing = true })
	ownFull := with(self, func(s *MemberStatus) { s.DiskFailing = true })
	silent := with(ok, func(s *MemberStatus) { s.SinceContact = reachableWithin })
	mute := with(ok, func(s *MemberStatus) { s.Answered = false })
	behind := with(ok, func(s *MemberStatus) { s.EntriesBehind = MaxEntriesBehind + 1 })
	edge := with(ok, func(s *MemberStatus) { s.Voter = false })
	for name, c := range map[string]struct {
		all         []MemberStatus
		able, spare int
	}{
		"three":                  {[]MemberStatus{self, ok, ok}, 3, 1},
		"one cannot write":       {[]MemberStatus{self, ok, full}, 2, 0},
		"itself cannot write":    {[]MemberStatus{ownFull, ok, ok}, 2, 0},
		"one full, one silent":   {[]MemberStatus{self, silent, full}, 1, -1},
		"one does not answer":    {[]MemberStatus{self, ok, mute}, 2, 0},
		"one is far behind":      {[]MemberStatus{self, ok, behind}, 2, 0},
		"an edge does not count": {[]MemberStatus{self, ok, silent, edge}, 2, 0},
		"alone":                  {[]MemberStatus{self}, 1, 0},
		"five":                   {[]MemberStatus{self, ok, ok, ok, silent}, 4, 1},
	} {
		if _, able, spare := CountSpareVoters(c.all); able != c.able || spare != c.spare {
			t.Errorf("%s: %d can write and %d may be lost, want %d and %d", name, able, spare, c.able, c.spare)
		}
	}
}
