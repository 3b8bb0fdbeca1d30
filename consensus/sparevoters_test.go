package consensus

import "testing"

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
