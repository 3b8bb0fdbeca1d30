package uplink

import (
	"cmp"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
)

// DescribeSessions describes the sessions of a node for its operators. Either end may be nil.
func DescribeSessions(node string, p *Parent, c *Child) *admin.UplinksAnswer {
	now := time.Now()
	out := &admin.UplinksAnswer{Node: node, Parents: []admin.UplinkSession{}, Children: []admin.UplinkSession{}}
	if c != nil {
		for _, s := range c.Sessions() {
			out.Parents = append(out.Parents, describeParentSession(c, &s, now))
		}
	}
	if p != nil {
		for _, i := range p.Children() {
			out.Children = append(out.Children, describeChildSession(&i, p.summaryGap(), now))
		}
		for _, x := range p.refusals.listRecent(now) {
			if path, err := PathOf(x.peer); err == nil && p.findSession(path) != nil {
				continue
			}
			out.Children = append(out.Children, admin.UplinkSession{
				Peer: x.peer.String(), Address: x.addr, State: admin.UplinkRefused, Error: x.message, SinceMS: now.Sub(x.refusedAt).Milliseconds(), AgeMS: -1,
			})
		}
		out.GapMS, out.Refused = p.summaryGap().Milliseconds(), p.refusals.countByReason()
	}
	return out
}

func describeParentSession(c *Child, s *ParentSession, now time.Time) admin.UplinkSession {
	out := describeTraffic(&s.Traffic)
	out.Address, out.State, out.SinceMS, out.AgeMS = s.Address, "down", now.Sub(s.Since).Milliseconds(), -1
	out.GapMS = s.RequestedGap.Milliseconds()
	if s.Parent.Role != "" {
		out.Peer = s.Parent.String()
		if p, v, ok := c.lastPositionOf(s.Parent); ok {
			out.Generation, out.Index, out.Ignored = p.Generation, p.Index, v.String()
		}
	}
	switch {
	case s.Connected:
		out.State = "connected"
	case s.Err != nil:
		out.Error = s.Err.Error()
	}
	if !s.ConfirmedAt.IsZero() {
		out.AgeMS = now.Sub(s.ConfirmedAt).Milliseconds()
	}
	return out
}

// childSilentAfter is the age of a child's last summary from which its session counts as silent, because its summary
// then counts as lost. maxMissedSummaries is how many summaries must be missing when children have longer gaps.
const (
	childSilentAfter   = 1250 * time.Millisecond
	maxMissedSummaries = 5
)

// describeChildSession describes a session. The session of a killed peer remains until QUIC times out: until then it
// is silent.
func describeChildSession(i *ChildInfo, gap time.Duration, now time.Time) admin.UplinkSession {
	out := describeTraffic(&i.Traffic)
	out.Peer, out.Path, out.Address, out.State = i.ID.String(), i.Path.String(), i.RemoteAddr, "connected"
	out.SinceMS, out.AgeMS = now.Sub(i.Since).Milliseconds(), -1
	if !i.LastSummaryAt.IsZero() {
		out.AgeMS = now.Sub(i.LastSummaryAt).Milliseconds()
	}
	if last := i.LastSummaryAt; now.Sub(last) > max(childSilentAfter, maxMissedSummaries*gap) && now.Sub(i.Since) > max(childSilentAfter, maxMissedSummaries*gap) {
		out.State = "silent"
	}
	out.Generation, out.Index = i.PositionInForce.Generation, i.PositionInForce.Index
	if i.PositionInForce != (Position{}) {
		out.Ignored = i.ignoredReason()
	}
	return out
}

func describeTraffic(t *Traffic) admin.UplinkSession {
	return admin.UplinkSession{
		Version: t.Version, RTTMS: float64(t.RTT.Microseconds()) / 1000, Loss: t.LossRate(),
		BytesIn: t.BytesIn, BytesOut: t.BytesOut, PacketsSent: t.PacketsSent, PacketsLost: t.PacketsLost,
		Deltas: t.Deltas, Snapshots: t.Snapshots, Directives: t.Directives, Passed: t.Skipped,
	}
}

// LossRate is the share of lost packets among those sent by this end.
func (t *Traffic) LossRate() float64 {
	return float64(t.PacketsLost) / float64(cmp.Or(t.PacketsSent, 1))
}

func (t *Traffic) addTraffic(x *Traffic) {
	t.Deltas, t.Snapshots, t.Directives, t.Skipped = t.Deltas+x.Deltas, t.Snapshots+x.Snapshots, t.Directives+x.Directives, t.Skipped+x.Skipped
	t.BytesIn, t.BytesOut = t.BytesIn+x.BytesIn, t.BytesOut+x.BytesOut
	t.PacketsSent, t.PacketsLost = t.PacketsSent+x.PacketsSent, t.PacketsLost+x.PacketsLost
}

// ignoredReason returns why the child does not apply what it was last sent; empty if it does, or has not yet
// reported.
func (i *ChildInfo) ignoredReason() string {
	switch {
	case i.SentPosition.Generation < i.PositionInForce.Generation:
		return OlderGeneration.String()
	case i.SentPosition.Compare(i.PositionInForce) < 0:
		return OlderIndex.String()
	}
	return ""
}
