package global

import (
	"sync"
	"time"

	"github.com/spillway-lb/spillway/global/liveness"
	"github.com/spillway-lb/spillway/global/snapshot"
)

// peerReports are the reports of the other nodes, for several goroutines.
type peerReports struct {
	mu      sync.Mutex
	reports liveness.PeerReports
	wake    func() // called when a report differs from the node's last one
}

func newPeerReports(wake func()) *peerReports { return &peerReports{wake: wake} }

// putReport stores a node's report.
func (b *peerReports) putReport(from string, body []byte) { b.putReportAt(from, body, time.Now()) }

// putReportAt stores a node's report that arrived at now.
func (b *peerReports) putReportAt(from string, body []byte, now time.Time) {
	b.mu.Lock()
	changed := b.reports.PutReport(from, body, now)
	b.mu.Unlock()
	if changed {
		b.wake()
	}
}

// freshReports returns every valid report by node.
func (b *peerReports) freshReports(now time.Time) map[string]liveness.PeerReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reports.FreshReports(now)
}

// clockOffsets returns the clock offsets of every valid report by node, relative to wall, this node's clock at now.
func (b *peerReports) clockOffsets(now, wall time.Time) map[string]time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reports.ClockOffsets(now, wall)
}

// allReadPlanVersion reports whether every voter except self reads plans of a version.
func (b *peerReports) allReadPlanVersion(version int, self string, voters []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reports.AllReadPlanVersion(version, self, voters)
}

// encodePeerReport encodes this node's report to the others.
func (s *Server) encodePeerReport() []byte {
	now := time.Now()
	t := liveness.NewPeerReport(s.summaries.capacityView(now), now.Sub(s.startedAt) > snapshot.StartupGrace && !s.silenceSuppressed.Load())
	t.ClockMS = s.clock.wallTime().UnixMilli()
	return t.EncodeReport()
}
