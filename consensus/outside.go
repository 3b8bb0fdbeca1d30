package consensus

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// kindStanding asks any node what it knows of the one whose name follows. It never enters the log.
const kindStanding kind = 0x7c

// What a node says of another's membership, in result.Current.
const (
	standsUnknown uint64 = iota // it knows no leader, and so may be behind
	standsMember
	standsOutside
)

const (
	wonderEvery = 5 * time.Second
	wonderAfter = 10 * time.Second // without a leader
)

// known is one node's answer about another.
type known struct {
	stands uint64
	heard  bool
	quiet  time.Duration // since it was heard, if it was
	why    string        // who took it out and why, if somebody did
}

// ask has the node at addr say what it knows of another.
func (n *Node) ask(ctx context.Context, addr, id string) (known, error) {
	ctx, cancel := context.WithTimeout(ctx, progressWithin)
	defer cancel()
	r, err := n.exchange(ctx, addr, append([]byte{byte(kindStanding)}, id...))
	if err != nil {
		return known{}, err
	}
	if err := r.err(); err != nil { // a node of an earlier release
		return known{}, err
	}
	k := known{stands: r.Current, heard: r.Value > 0, why: r.Message}
	if k.heard {
		k.quiet = time.Duration(min(r.Value-1, uint64(100*365*24*time.Hour/time.Millisecond))) * time.Millisecond
	}
	return k, nil
}

// tellOf answers another node's question.
func (n *Node) tellOf(id string) result {
	r := result{Code: codeOK}
	if quiet, heard := n.heard.quiet(id, time.Now()); heard {
		r.Value = 1 + uint64(max(0, quiet)/time.Millisecond)
	}
	switch {
	case n.Leader() == "":
	case n.isMember(id):
		r.Current = standsMember
	default:
		r.Current, r.Message = standsOutside, n.State().removalOf(id)
	}
	return r
}

// removalOf is what the audit says of a member's removal; empty when it is too long ago.
func (s *State) removalOf(id string) string {
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

// wonder finds out why there is no leader: a node that was taken out while it was away is told nothing any more.
func (n *Node) wonder() {
	t := time.NewTicker(wonderEvery)
	defer t.Stop()
	led := time.Now()
	for {
		select {
		case <-n.ctx.Done():
			return
		case now := <-t.C:
			if n.Leader() != "" {
				led = now
				n.outside.Store(nil)
			} else if now.Sub(led) >= wonderAfter {
				n.inquire(n.ctx)
			}
		}
	}
}

// inquire asks the others until one knows.
func (n *Node) inquire(ctx context.Context) {
	addrs := map[string]string{}
	for _, m := range n.Members() {
		addrs[m.ID] = m.Addr
	}
	for id, addr := range n.addrs {
		addrs[id] = addr
	}
	delete(addrs, n.id)
	for id, addr := range addrs {
		k, err := n.ask(ctx, addr, n.id)
		if err != nil || k.stands == standsUnknown {
			continue
		}
		if k.stands == standsMember {
			n.outside.Store(nil)
			return
		}
		o := &Outside{By: id, Why: k.why}
		if n.outside.Swap(o) == nil {
			n.log.Error("this node is no member: it answers from its last state and follows nobody", "told_by", id, "reason", k.why, "hint", "spillway members add "+n.id+" HOST:PORT, at any other global node")
		}
		return
	}
}

// Outside says that a node takes no part: it was removed, or was never added.
type Outside struct {
	By  string // the member that said so
	Why string // what its audit says of the removal; empty when nothing
}

// Outside is set while other members say that this node is none of them.
func (n *Node) Outside() (o Outside, ok bool) {
	if p := n.outside.Load(); p != nil {
		return *p, true
	}
	return Outside{}, false
}
