package consensus

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// kindAskMember asks any node about the membership of the node whose name follows. It never enters the log.
const kindAskMember commandKind = 0x7c

// Answers about the membership of a node, in commandResult.Current.
const (
	answerUnknown uint64 = iota // the node has no leader, and so may lag
	answerMember
	answerNonMember
)

const (
	membershipCheckInterval = 5 * time.Second
	membershipCheckDelay    = 10 * time.Second // without a leader
)

// memberAnswer is the answer of one node about another.
type memberAnswer struct {
	membership    uint64
	reachable     bool
	sinceContact  time.Duration // since its last contact, if there was any
	removalReason string        // who removed it and why; empty if not removed
}

// askAboutMember asks the node at addr about the membership of another.
func (n *Node) askAboutMember(ctx context.Context, addr, id string) (memberAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, progressTimeout)
	defer cancel()
	r, err := n.sendCommand(ctx, addr, append([]byte{byte(kindAskMember)}, id...))
	if err != nil {
		return memberAnswer{}, err
	}
	if err := r.toError(); err != nil { // the peer runs an earlier release
		return memberAnswer{}, err
	}
	k := memberAnswer{membership: r.Current, reachable: r.Value > 0, removalReason: r.Message}
	if k.reachable {
		k.sinceContact = time.Duration(min(r.Value-1, uint64(100*365*24*time.Hour/time.Millisecond))) * time.Millisecond
	}
	return k, nil
}

// describeMember answers another node's question.
func (n *Node) describeMember(id string) commandResult {
	r := commandResult{Code: codeOK}
	if since, known := n.contacts.sinceContact(id, time.Now()); known {
		r.Value = 1 + uint64(max(0, since)/time.Millisecond)
	}
	switch {
	case n.Leader() == "":
	case n.isMember(id):
		r.Current = answerMember
	default:
		r.Current, r.Message = answerNonMember, n.State().describeRemoval(id)
	}
	return r
}

// describeRemoval returns the audit's record of a member's removal; empty when the record has been dropped.
func (s *State) describeRemoval(id string) string {
	for _, r := range slices.Backward(s.Audit) {
		if subject, _, _ := strings.Cut(r.Subject, " "); r.Action == "member remove" && subject == id {
			text := fmt.Sprintf("removed by %s at %s", r.Actor, r.At.Format(time.RFC3339))
			if r.Reason != "" {
				text += ": " + r.Reason
			}
			return text
		}
	}
	return ""
}

// watchMembership finds out why there is no leader: a node that was removed while it was down gets no messages any
// more.
func (n *Node) watchMembership() {
	t := time.NewTicker(membershipCheckInterval)
	defer t.Stop()
	led := time.Now()
	for {
		select {
		case <-n.ctx.Done():
			return
		case now := <-t.C:
			if n.Leader() != "" {
				led = now
				n.nonMember.Store(nil)
			} else if now.Sub(led) >= membershipCheckDelay {
				n.checkMembership(n.ctx)
			}
		}
	}
}

// checkMembership asks the other nodes in turn until one gives a definite answer.
func (n *Node) checkMembership(ctx context.Context) {
	addrs := map[string]string{}
	for _, m := range n.Members() {
		addrs[m.ID] = m.Addr
	}
	for id, addr := range n.peerAddrs {
		addrs[id] = addr
	}
	delete(addrs, n.id)
	for id, addr := range addrs {
		k, err := n.askAboutMember(ctx, addr, n.id)
		if err != nil || k.membership == answerUnknown {
			continue
		}
		if k.membership == answerMember {
			n.nonMember.Store(nil)
			return
		}
		o := &NonMember{ReportedBy: id, Reason: k.removalReason}
		if n.nonMember.Swap(o) == nil {
			n.log.Error("this node is not a member: it answers from its last state and receives no changes", "reported_by", id, "reason", k.removalReason, "hint", "spillway members add "+n.id+" HOST:PORT, at any other global node")
		}
		return
	}
}

// NonMember describes a node that is not a member: it was removed, or was never added.
type NonMember struct {
	ReportedBy string // the member that reported it
	Reason     string // the audit record of the removal; empty if there is none
}

// NonMember returns ok if other members report that this node is not a member.
func (n *Node) NonMember() (o NonMember, ok bool) {
	if p := n.nonMember.Load(); p != nil {
		return *p, true
	}
	return NonMember{}, false
}
