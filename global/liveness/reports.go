package liveness

import (
	"slices"
	"time"
)

// PeerReports holds the newest report of every other node. It is bounded, because the nodes are the voters of the
// configuration. The zero value is ready for use.
type PeerReports struct {
	latest map[string]receivedReport
}

type receivedReport struct {
	PeerReport
	receivedAt time.Time
}

// PutReport stores a node's report, and reports whether it reaches other gateways than the node's last one. A
// malformed report is ignored.
func (b *PeerReports) PutReport(from string, body []byte, now time.Time) (changed bool) {
	t, err := decodePeerReport(body)
	if err != nil {
		return false
	}
	if b.latest == nil {
		b.latest = map[string]receivedReport{}
	}
	was := b.latest[from]
	b.latest[from] = receivedReport{t, now}
	return was.Settled != t.Settled || !slices.Equal(was.Reachable, t.Reachable)
}

// FreshReports returns every valid report by node.
func (b *PeerReports) FreshReports(now time.Time) map[string]PeerReport {
	out := make(map[string]PeerReport, len(b.latest))
	for name, s := range b.latest {
		if now.Sub(s.receivedAt) <= ReportLifetime {
			out[name] = s.PeerReport
		}
	}
	return out
}

// AllReadPlanVersion reports whether every voter except self has reported that it reads plans of a version. A voter
// without a report since this node started may run an older release, which could not read such a plan.
func (b *PeerReports) AllReadPlanVersion(version int, self string, voters []string) bool {
	for _, name := range voters {
		if name != self && b.latest[name].PlanVersion < version {
			return false
		}
	}
	return true
}

// ClockOffsets returns the clock offsets of every valid report by node, relative to wall, this node's clock at now.
func (b *PeerReports) ClockOffsets(now, wall time.Time) map[string]time.Duration {
	out := map[string]time.Duration{}
	for name, s := range b.latest {
		since := now.Sub(s.receivedAt)
		if since > ReportLifetime {
			continue
		}
		if d, ok := computeClockOffset(s.ClockMS, wall.Add(-since)); ok {
			out[name] = d
		}
	}
	return out
}

// computeClockOffset returns the offset of a peer's clock from this node's clock. own is what this node's clock, in
// its present setting, showed when the message arrived: now less the monotonic time since, so that a step of this
// node's own clock counts at once. It returns false if the message carries no clock. No RTT between global nodes is
// measured, so the offset is smaller than the true one by the transit time of the message.
func computeClockOffset(clockMS int64, own time.Time) (time.Duration, bool) {
	if clockMS <= 0 {
		return 0, false
	}
	const most = int64(MaxClockOffset / time.Millisecond)
	return time.Duration(min(max(clockMS-max(own.UnixMilli(), 0), -most), most)) * time.Millisecond, true
}
