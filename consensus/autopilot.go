package consensus

import (
	"fmt"
	"slices"
	"time"
)

// Bounds of the autopilot. The figures are those of Consul, Nomad and HashiCorp Vault.
const (
	reachableWithin = 10 * time.Second // a member with a contact within this time is reachable
	promoteAfter    = 10 * time.Second // how long a node must keep up before it gets its vote automatically
	lowestMinVoters = 3                // voters, even if MinVoters is lower: with two, one loss stops every write
)

// AutopilotConfig configures the automatic removal of voters by the leader.
type AutopilotConfig struct {
	// RemoveAfter is how long a voter must have been silent, to the leader and to every other voter, before it is
	// removed. 0: never.
	RemoveAfter time.Duration
	// MinVoters is how many voters must remain after a removal, at least 3.
	MinVoters int
}

// MemberStatus is the state of one member, as seen by one node.
type MemberStatus struct {
	Member
	Self          bool
	PendingVote   bool          // an operator added it as a voter and it does not keep up yet
	Contacted     bool          // SinceContact counts from a real contact, not from this node's start
	SinceContact  time.Duration // time since the last contact; 0 for this node itself
	EntriesBehind uint64        // log entries that it lacks, if Answered
	Answered      bool          // it answered the question for its progress
	CaughtUpFor   time.Duration // how long it has kept up, on the leader; 0 elsewhere
	// DiskFailing is set if its disk takes no writes, if Answered or Self: it counts toward the size of a majority
	// and cannot contribute to it.
	DiskFailing bool
}

// MaxEntriesBehind is the number of missing log entries from which a member does not keep up.
const MaxEntriesBehind = 1000

// CanWrite reports whether the member can contribute to a majority now. It needs an answer of the member: see
// ProbeMembers.
func (s MemberStatus) CanWrite() bool {
	return !s.DiskFailing && (s.Self || s.IsReachable() && s.Answered && s.EntriesBehind <= MaxEntriesBehind)
}

// CountSpareVoters returns how many voters can write, and how many of those may be lost before changes become
// impossible; negative while they are impossible.
func CountSpareVoters(all []MemberStatus) (voters, able, spare int) {
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

// IsReachable reports whether there was a recent contact with the member.
func (s MemberStatus) IsReachable() bool { return s.Self || s.SinceContact < reachableWithin }

// isCaughtUp reports whether the member could vote now.
func (s MemberStatus) isCaughtUp() bool {
	return s.IsReachable() && s.Answered && !s.DiskFailing && s.EntriesBehind <= caughtUpEntries
}

// nextChange returns the change to make now and its reason; usually none. It changes one member at a time, and only
// while a majority of the voters in force is reachable. Every step can thus be committed and leaves a cluster that
// can commit the next. A vote is granted before one is removed, so that the cluster grows before it shrinks.
func (k AutopilotConfig) nextChange(all []MemberStatus) (m membershipChange, why string) {
	for _, s := range all {
		if s.PendingVote && !s.Voter && s.isCaughtUp() && s.CaughtUpFor >= promoteAfter && hasReachableMajority(all) {
			return membershipChange{Op: "add", ID: s.ID, Addr: s.Addr, Voter: true}, fmt.Sprintf("it has kept up for %s", s.CaughtUpFor.Round(time.Second))
		}
	}
	for _, s := range all {
		if left, kept := k.checkRemoval(all, s); s.Voter && kept == "" && left == 0 {
			return membershipChange{Op: "remove", ID: s.ID}, fmt.Sprintf("silent for %s, and raft.remove_after is %s", s.SinceContact.Round(time.Second), k.RemoveAfter)
		}
	}
	return membershipChange{}, ""
}

// checkRemoval returns the time until a silent voter is removed, or the reason why it is kept.
func (k AutopilotConfig) checkRemoval(all []MemberStatus, s MemberStatus) (left time.Duration, kept string) {
	voters := 0
	for _, x := range all {
		if x.Voter {
			voters++
		}
	}
	switch least := max(k.MinVoters, lowestMinVoters); {
	case k.RemoveAfter <= 0:
		return 0, "raft.remove_after is 0"
	case s.Self, s.Leader:
		return 0, "it is the leader"
	case voters-1 < least:
		return 0, fmt.Sprintf("fewer than %d voters would be left: add another first", least)
	case !hasReachableMajority(all):
		return 0, "no majority of the voters is reachable"
	}
	return max(0, k.RemoveAfter-s.SinceContact), ""
}

// hasReachableMajority reports whether more than half of the voters are reachable.
func hasReachableMajority(all []MemberStatus) bool {
	voters, reachable := 0, 0
	for _, s := range all {
		if s.Voter {
			voters++
			if s.IsReachable() {
				reachable++
			}
		}
	}
	return 2*reachable > voters
}

// DescribeOutlook returns a short text about the next automatic change of a member; empty if there is none.
func (k AutopilotConfig) DescribeOutlook(all []MemberStatus, id string) string {
	at := slices.IndexFunc(all, func(s MemberStatus) bool { return s.ID == id })
	if at < 0 {
		return ""
	}
	s := all[at]
	switch {
	case s.PendingVote && !s.Voter && !s.IsReachable():
		return "gets its vote when it is running and keeps up"
	case s.PendingVote && !s.Voter:
		return fmt.Sprintf("gets its vote after keeping up for %s", promoteAfter)
	case !s.Voter || s.IsReachable():
		return ""
	}
	left, kept := k.checkRemoval(all, s)
	switch {
	case kept != "":
		return "stays: " + kept
	case left == 0:
		return "is about to be removed"
	}
	return fmt.Sprintf("will be removed in %s", left.Round(time.Second))
}
