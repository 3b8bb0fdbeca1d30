package consensus

import (
	"fmt"
	"slices"
	"time"
)

// Bounds of the steward's judgement. The figures are those that Consul, Nomad and Vault settled on.
const (
	wellWithin  = 10 * time.Second // a member heard of within this is well
	steadyAfter = 10 * time.Second // how long a node must keep up before it has its vote without being added again
	neverFewer  = 3                // voters, whatever Keep says: with two, one loss stops every write
)

// Keep says what the leader does about members by itself.
type Keep struct {
	// RemoveAfter is how long a voter must have been silent, to the leader and to every other voter, before it is taken
	// out. 0: never.
	RemoveAfter time.Duration
	// MinVoters is how many voters must be left after a removal, at least 3.
	MinVoters int
}

// Standing is how one member does, as one node knows it.
type Standing struct {
	Member
	Self   bool
	Wants  bool          // an operator added it as a voter and it has yet to keep up
	Heard  bool          // Quiet counts from when it was heard, and not from this node's start
	Quiet  time.Duration // since it was last heard; 0 for this node itself
	Behind uint64        // entries of the log that it lacks, if Asked
	Asked  bool          // it answered when it was asked how far it is
	Steady time.Duration // for how long it has kept up, by the leader; 0 elsewhere
	// Failing says that its disk takes no writes, if Asked or Self: it counts for a majority and cannot give its part.
	Failing bool
}

// FarBehind is how many log entries a member lacks that does not keep up.
const FarBehind = 1000

// CanWrite reports whether the member can give its part of a majority now. It needs an answer of the member: see Standings.
func (s Standing) CanWrite() bool {
	return !s.Failing && (s.Self || s.Well() && s.Asked && s.Behind <= FarBehind)
}

// Spare is how many of the voters can write, and how many of those may be lost before nothing can be changed; negative
// while nothing can.
func Spare(all []Standing) (voters, able, spare int) {
	for _, s := range all {
		if s.Voter {
			voters++
			if s.CanWrite() {
				able++
			}
		}
	}
	return voters, able, able - (voters/2 + 1)
}

// Well reports whether the member was heard of lately.
func (s Standing) Well() bool { return s.Self || s.Quiet < wellWithin }

// keepsUp reports whether the member could vote now.
func (s Standing) keepsUp() bool { return s.Well() && s.Asked && !s.Failing && s.Behind <= nearEnough }

// next is what to do now, and why; nothing most of the time. It changes one member at a time and only when a majority of
// the voters in force is well, so that every step can be agreed on and leaves a cluster that can agree on the next. A vote
// is given before one is taken, so that the cluster grows before it shrinks.
func (k Keep) next(all []Standing) (m membership, why string) {
	for _, s := range all {
		if s.Wants && !s.Voter && s.keepsUp() && s.Steady >= steadyAfter && majorityWell(all) {
			return membership{Do: "add", ID: s.ID, Addr: s.Addr, Vote: true}, fmt.Sprintf("it has kept up for %s", s.Steady.Round(time.Second))
		}
	}
	for _, s := range all {
		if left, kept := k.removal(all, s); s.Voter && kept == "" && left == 0 {
			return membership{Do: "remove", ID: s.ID}, fmt.Sprintf("silent for %s, and raft.remove_after is %s", s.Quiet.Round(time.Second), k.RemoveAfter)
		}
	}
	return membership{}, ""
}

// removal is how long a voter has left if it stays silent, or why it would be kept all the same.
func (k Keep) removal(all []Standing, s Standing) (left time.Duration, kept string) {
	voters := 0
	for _, x := range all {
		if x.Voter {
			voters++
		}
	}
	switch least := max(k.MinVoters, neverFewer); {
	case k.RemoveAfter <= 0:
		return 0, "raft.remove_after is 0"
	case s.Self, s.Leader:
		return 0, "it leads"
	case voters-1 < least:
		return 0, fmt.Sprintf("fewer than %d voters would be left: add another first", least)
	case !majorityWell(all):
		return 0, "no majority of the voters is well"
	}
	return max(0, k.RemoveAfter-s.Quiet), ""
}

// majorityWell reports whether more than half of the voters are well.
func majorityWell(all []Standing) bool {
	voters, well := 0, 0
	for _, s := range all {
		if s.Voter {
			voters++
			if s.Well() {
				well++
			}
		}
	}
	return 2*well > voters
}

// Outlook says what lies ahead of a member, in a few words; empty when nothing does.
func (k Keep) Outlook(all []Standing, id string) string {
	at := slices.IndexFunc(all, func(s Standing) bool { return s.ID == id })
	if at < 0 {
		return ""
	}
	s := all[at]
	switch {
	case s.Wants && !s.Voter && !s.Well():
		return "gets its vote once it runs and keeps up"
	case s.Wants && !s.Voter:
		return fmt.Sprintf("gets its vote after keeping up for %s", steadyAfter)
	case !s.Voter || s.Well():
		return ""
	}
	left, kept := k.removal(all, s)
	switch {
	case kept != "":
		return "stays: " + kept
	case left == 0:
		return "is about to be removed"
	}
	return fmt.Sprintf("will be removed in %s", left.Round(time.Second))
}
