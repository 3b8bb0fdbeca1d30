// Package liveness decides which regions are reachable, from this node's own capacity summaries and from the reports of
// the other global nodes.
//
// Every node sends a PeerReport on the gateways that it reaches to all others, and PeerReports keeps the newest one of
// each. Votes joins the reports: a region stays in a node's answers while any node reaches it, and it is dead, which
// excludes it from plans, once a majority of the voters does not reach it. IsolationGuard distinguishes an unreachable
// region from this node's own loss of connectivity.
//
// The package is pure: the caller passes the time and sends and receives the reports.
package liveness

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/capacity"
)

// PeerReport is one global node's report to the others on the gateways that it reaches, so that one node's lost link
// does not count as the loss of a region.
type PeerReport struct {
	// Settled is true if the node has been up for long enough for a missing region to be meaningful.
	Settled bool `json:"settled"`
	// Reachable lists the gateways that the node reaches as region/gateway, in order.
	Reachable []string `json:"heard"`
	// PlanVersion is the newest plan version that the node reads; 0: the node's release does not report it.
	PlanVersion int `json:"plans,omitempty"`
	// ClockMS is the node's wall clock when it sent this, in milliseconds of Unix time; 0: the node's release does not
	// report it. It differs in each report, so a change of it alone triggers nothing.
	ClockMS int64 `json:"clock_ms,omitempty"`
}

// NewPeerReport returns a node's own report, without a clock.
func NewPeerReport(children *capacity.CapacityView, settled bool) PeerReport {
	t := PeerReport{Settled: settled, Reachable: []string{}, PlanVersion: steer.PlanVersion}
	for i := range children.Children {
		if c := &children.Children[i]; c.State != capacity.Unreachable {
			t.Reachable = append(t.Reachable, c.Summary.Path.String())
		}
	}
	slices.Sort(t.Reachable)
	return t
}

// EncodeReport encodes the report for the other nodes.
func (t *PeerReport) EncodeReport() []byte {
	b, err := json.Marshal(t)
	if err != nil {
		return nil // cannot fail for strings, numbers and a bool
	}
	return b
}

var errBadPeerReport = errors.New("malformed peer report")

// decodePeerReport decodes another node's report, and sorts it if necessary.
func decodePeerReport(b []byte) (t PeerReport, err error) {
	if err := json.Unmarshal(b, &t); err != nil {
		return PeerReport{}, errBadPeerReport
	}
	if len(t.Reachable) > capacity.MaxTableChildren {
		return PeerReport{}, errBadPeerReport
	}
	slices.Sort(t.Reachable)
	return t, nil
}

// reachesRegion reports whether the node reaches any gateway of a region.
func (t *PeerReport) reachesRegion(region string) bool {
	prefix := region + "/"
	i, _ := slices.BinarySearch(t.Reachable, prefix)
	return i < len(t.Reachable) && len(t.Reachable[i]) > len(prefix) && t.Reachable[i][:len(prefix)] == prefix
}

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
