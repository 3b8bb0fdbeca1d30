package consensus

import (
	"context"
	"log/slog"
	"sync/atomic"
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

// membershipWatch finds out whether this node is still a member, while there is no leader.
type membershipWatch struct {
	id      string
	log     *slog.Logger
	book    *addressBook
	cluster interface {
		Leader() string
		Members() []Member
	}
	ask func(ctx context.Context, addr, id string) (memberAnswer, error)

	nonMember atomic.Pointer[NonMember] // the report of other members that this node is not a member
}

// watchMembership finds out why there is no leader: a node that was removed while it was down gets no messages any
// more.
func (w *membershipWatch) watchMembership(ctx context.Context) {
	t := time.NewTicker(membershipCheckInterval)
	defer t.Stop()
	led := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-t.C:
			if w.cluster.Leader() != "" {
				led = now
				w.nonMember.Store(nil)
			} else if now.Sub(led) >= membershipCheckDelay {
				w.checkMembership(ctx)
			}
		}
	}
}

// checkMembership asks the other nodes in turn until one gives a definite answer.
func (w *membershipWatch) checkMembership(ctx context.Context) {
	addrs := map[string]string{}
	for _, m := range w.cluster.Members() {
		addrs[m.ID] = m.Addr
	}
	for id, addr := range w.book.addrs {
		addrs[id] = addr
	}
	delete(addrs, w.id)
	for id, addr := range addrs {
		k, err := w.ask(ctx, addr, w.id)
		if err != nil || k.membership == answerUnknown {
			continue
		}
		if k.membership == answerMember {
			w.nonMember.Store(nil)
			return
		}
		o := &NonMember{ReportedBy: id, Reason: k.removalReason}
		if w.nonMember.Swap(o) == nil {
			w.log.Error("this node is not a member of the cluster: it answers from its last state and receives no changes", "reported_by", id, "reason", k.removalReason, "hint", "spillway members add "+w.id+" HOST:PORT, at any other global node")
		}
		return
	}
}

// NonMember describes a node that is not a member: it was removed, or was never added.
type NonMember struct {
	ReportedBy string // the member that reported it
	Reason     string // the audit record of the removal; empty if there is none
}

// reportedNonMember returns ok if other members report that this node is not a member.
func (w *membershipWatch) reportedNonMember() (o NonMember, ok bool) {
	if p := w.nonMember.Load(); p != nil {
		return *p, true
	}
	return NonMember{}, false
}
