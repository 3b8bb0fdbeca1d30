package global

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// raftMetrics are what consensus tells of its writes, and what is read off it when somebody looks.
type raftMetrics struct {
	proposals    *prometheus.CounterVec
	commit, disk prometheus.Histogram
	node         *consensus.Node // set before the first look
}

var (
	descTerm     = prometheus.NewDesc("spillway_global_raft_term", "Raft's term at this node.", nil, nil)
	descCommit   = prometheus.NewDesc("spillway_global_raft_commit_index", "Last Raft index known to be committed.", nil, nil)
	descLast     = prometheus.NewDesc("spillway_global_raft_last_index", "Last Raft index stored.", nil, nil)
	descContact  = prometheus.NewDesc("spillway_global_raft_last_contact_seconds", "Time since the leader was heard; 0 at the leader; absent when none ever was.", nil, nil)
	descKnown    = prometheus.NewDesc("spillway_global_raft_leader_known", "1 while this node knows a leader.", nil, nil)
	descVoters   = prometheus.NewDesc("spillway_global_raft_voters", "Nodes with a vote.", nil, nil)
	descSilent   = prometheus.NewDesc("spillway_global_raft_silent_voters", "Voters that this node has not heard of for half a minute.", nil, nil)
	descOutside  = prometheus.NewDesc("spillway_global_raft_outside", "1 while other members say that this node is none.", nil, nil)
	descDiskFail = prometheus.NewDesc("spillway_global_raft_disk_failures_total", "Writes that the disk did not take.", nil, nil)
)

func newRaftMetrics(reg prometheus.Registerer) *raftMetrics {
	m := &raftMetrics{
		proposals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_global_raft_proposals_total", Help: "Writes made through this node, by what became of them.",
		}, []string{"outcome"}),
		commit: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spillway_global_raft_commit_seconds", Help: "Time from a write at the leader until it was agreed and applied there.", Buckets: telemetry.WaitBuckets(),
		}),
		disk: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spillway_global_raft_fsync_seconds", Help: "Time for a write to the Raft log to be on the disk.", Buckets: telemetry.WaitBuckets(),
		}),
	}
	reg.MustRegister(m.proposals, m.commit, m.disk, m)
	return m
}

func (m *raftMetrics) proposed(outcome string)      { m.proposals.WithLabelValues(outcome).Inc() }
func (m *raftMetrics) committed(took time.Duration) { m.commit.Observe(took.Seconds()) }
func (m *raftMetrics) written(took time.Duration)   { m.disk.Observe(took.Seconds()) }

// Describe says nothing beforehand: the time of the last contact may be absent.
func (m *raftMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads the node.
func (m *raftMetrics) Collect(out chan<- prometheus.Metric) {
	put := func(d *prometheus.Desc, v float64) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	if m.node == nil {
		return
	}
	s := m.node.Status()
	known := 0.0
	if s.Leader != "" {
		known = 1
	}
	if _, outside := m.node.Outside(); outside {
		put(descOutside, 1)
	} else {
		put(descOutside, 0)
	}
	put(descTerm, float64(s.Term))
	put(descCommit, float64(s.Commit))
	put(descLast, float64(s.Last))
	put(descKnown, known)
	put(descVoters, float64(len(s.Voters)))
	put(descSilent, float64(len(m.node.Silent())))
	if s.LastContact >= 0 {
		put(descContact, s.LastContact.Seconds())
	}
	out <- prometheus.MustNewConstMetric(descDiskFail, prometheus.CounterValue, float64(m.node.DiskFailures()))
}
