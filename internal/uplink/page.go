package uplink

import (
	"cmp"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

// Page describes the sessions of a node for its operators. Either end may be nil.
func Page(node string, p *Parent, c *Child) *admin.UplinksAnswer {
	now := time.Now()
	out := &admin.UplinksAnswer{Node: node, Parents: []admin.UplinkSession{}, Children: []admin.UplinkSession{}}
	if c != nil {
		for _, s := range c.Sessions() {
			out.Parents = append(out.Parents, pageOfParent(c, &s, now))
		}
	}
	if p != nil {
		for _, i := range p.Children() {
			out.Children = append(out.Children, pageOfChild(&i, p.pace(), now))
		}
		for _, x := range p.refused.kept(now) {
			if path, err := PathOf(x.peer); err == nil && p.session(path) != nil {
				continue
			}
			out.Children = append(out.Children, admin.UplinkSession{
				Peer: x.peer.String(), Address: x.addr, State: admin.UplinkRefused, Error: x.why, SinceMS: now.Sub(x.at).Milliseconds(), AgeMS: -1,
			})
		}
		out.GapMS, out.Refused = p.pace().Milliseconds(), p.refused.byReason()
	}
	return out
}

func pageOfParent(c *Child, s *Session, now time.Time) admin.UplinkSession {
	out := pageOf(&s.Traffic)
	out.Address, out.State, out.SinceMS, out.AgeMS = s.Address, "down", now.Sub(s.Since).Milliseconds(), -1
	out.GapMS = s.Gap.Milliseconds()
	if s.Parent.Role != "" {
		out.Peer = s.Parent.String()
		if p, v, ok := c.lastOf(s.Parent); ok {
			out.Generation, out.Index, out.Ignored = p.Generation, p.Index, v.String()
		}
	}
	switch {
	case s.Connected:
		out.State = "connected"
	case s.Err != nil:
		out.Error = s.Err.Error()
	}
	if !s.Heard.IsZero() {
		out.AgeMS = now.Sub(s.Heard).Milliseconds()
	}
	return out
}

// childSilentAfter is how old a child's last statement is when its session counts as silent, as its summary then counts as
// lost, and childSilentGaps how many statements are then missing where children are asked to keep longer gaps.
const (
	childSilentAfter = 1250 * time.Millisecond
	childSilentGaps  = 5
)

// pageOfChild describes a session. A peer that was killed keeps it until QUIC times out: until then it is silent.
func pageOfChild(i *ChildInfo, gap time.Duration, now time.Time) admin.UplinkSession {
	out := pageOf(&i.Traffic)
	out.Peer, out.Path, out.Address, out.State = i.ID.String(), i.Path.String(), i.Remote, "connected"
	out.SinceMS, out.AgeMS = now.Sub(i.Since).Milliseconds(), -1
	if !i.Last.IsZero() {
		out.AgeMS = now.Sub(i.Last).Milliseconds()
	}
	if last := i.Last; now.Sub(last) > max(childSilentAfter, childSilentGaps*gap) && now.Sub(i.Since) > max(childSilentAfter, childSilentGaps*gap) {
		out.State = "silent"
	}
	out.Generation, out.Index = i.InForce.Generation, i.InForce.Index
	if i.InForce != (Position{}) {
		out.Ignored = i.ignoredReason()
	}
	return out
}

func pageOf(t *Traffic) admin.UplinkSession {
	return admin.UplinkSession{
		Version: t.Version, RTTMS: float64(t.RTT.Microseconds()) / 1000, Loss: t.Loss(),
		BytesIn: t.BytesIn, BytesOut: t.BytesOut, PacketsSent: t.PacketsSent, PacketsLost: t.PacketsLost,
		Deltas: t.Deltas, Snapshots: t.Snapshots, Directives: t.Directives, Passed: t.Passed,
	}
}

// Loss is the share of the packets sent by this end that were lost.
func (t *Traffic) Loss() float64 { return float64(t.PacketsLost) / float64(cmp.Or(t.PacketsSent, 1)) }

func (t *Traffic) add(x *Traffic) {
	t.Deltas, t.Snapshots, t.Directives, t.Passed = t.Deltas+x.Deltas, t.Snapshots+x.Snapshots, t.Directives+x.Directives, t.Passed+x.Passed
	t.BytesIn, t.BytesOut = t.BytesIn+x.BytesIn, t.BytesOut+x.BytesOut
	t.PacketsSent, t.PacketsLost = t.PacketsSent+x.PacketsSent, t.PacketsLost+x.PacketsLost
}

// ignoredReason says why the child does not follow what it was last sent; empty when it does, or when it is yet to.
func (i *ChildInfo) ignoredReason() string {
	switch {
	case i.Sent.Generation < i.InForce.Generation:
		return OlderGeneration.String()
	case i.Sent.Compare(i.InForce) < 0:
		return OlderIndex.String()
	}
	return ""
}
