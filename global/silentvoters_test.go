package global

import (
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
)

// TestStatusAndMembersCountSpareVotersAlike: a voter that cannot write, or does not answer, does not count as a spare
// when another is silent.
func TestStatusAndMembersCountSpareVotersAlike(t *testing.T) {
	self := consensus.MemberStatus{Member: consensus.Member{ID: "g1", Voter: true}, Self: true}
	ok := func(id string) consensus.MemberStatus {
		return consensus.MemberStatus{Member: consensus.Member{ID: id, Voter: true}, Contacted: true, Answered: true}
	}
	with := func(s consensus.MemberStatus, change func(*consensus.MemberStatus)) consensus.MemberStatus {
		change(&s)
		return s
	}
	gone := with(ok("g5"), func(s *consensus.MemberStatus) { s.SinceContact, s.Answered = time.Minute, false })
	full := with(ok("g4"), func(s *consensus.MemberStatus) { s.DiskFailing = true })
	mute := with(ok("g3"), func(s *consensus.MemberStatus) { s.Answered = false })
	for name, c := range map[string]struct {
		all  []consensus.MemberStatus
		want string
	}{
		"the others are healthy":      {[]consensus.MemberStatus{self, ok("g2"), ok("g3"), ok("g4"), gone}, ": 1 more may be lost before"},
		"one more cannot write":       {[]consensus.MemberStatus{self, ok("g2"), ok("g3"), full, gone}, ": 0 more may be lost before"},
		"and another does not answer": {[]consensus.MemberStatus{self, ok("g2"), mute, full, gone}, ": 2 can write: nothing can be changed until 1 more can"},
	} {
		notes := formatSilentVoters([]consensus.SilentVoter{{ID: "g5", SilentFor: time.Minute}}, c.all, consensus.AutopilotConfig{})
		if len(notes) != 1 || !strings.HasPrefix(notes[0], "voter g5 had no contact for 1m0s"+c.want) {
			t.Errorf("%s: %q, want %q", name, notes, c.want)
		}
	}
}
