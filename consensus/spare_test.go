package consensus

import "testing"

// TestSpareCountsThoseThatCanWrite: how many nodes may be lost is what is left above a majority of those that answer, keep up
// and can write.
func TestSpareCountsThoseThatCanWrite(t *testing.T) {
	self := Standing{Member: Member{Voter: true}, Self: true}
	ok := Standing{Member: Member{Voter: true}, Asked: true}
	with := func(s Standing, change func(*Standing)) Standing { change(&s); return s }
	full := with(ok, func(s *Standing) { s.Failing = true })
	ownFull := with(self, func(s *Standing) { s.Failing = true })
	silent := with(ok, func(s *Standing) { s.Quiet = wellWithin })
	mute := with(ok, func(s *Standing) { s.Asked = false })
	behind := with(ok, func(s *Standing) { s.Behind = FarBehind + 1 })
	edge := with(ok, func(s *Standing) { s.Voter = false })
	for name, c := range map[string]struct {
		all         []Standing
		able, spare int
	}{
		"three":                  {[]Standing{self, ok, ok}, 3, 1},
		"one cannot write":       {[]Standing{self, ok, full}, 2, 0},
		"itself cannot write":    {[]Standing{ownFull, ok, ok}, 2, 0},
		"one full, one silent":   {[]Standing{self, silent, full}, 1, -1},
		"one does not answer":    {[]Standing{self, ok, mute}, 2, 0},
		"one is far behind":      {[]Standing{self, ok, behind}, 2, 0},
		"an edge does not count": {[]Standing{self, ok, silent, edge}, 2, 0},
		"alone":                  {[]Standing{self}, 1, 0},
		"five":                   {[]Standing{self, ok, ok, ok, silent}, 4, 1},
	} {
		if _, able, spare := Spare(c.all); able != c.able || spare != c.spare {
			t.Errorf("%s: %d can write and %d may be lost, want %d and %d", name, able, spare, c.able, c.spare)
		}
	}
}
