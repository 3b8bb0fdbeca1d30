package global

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// raftMetrics are the metrics of consensus: counters of its writes, and gauges read at each scrape.
type raftMetrics struct {
	proposals                   *prometheus.CounterVec
	commitSeconds, fsyncSeconds prometheus.Histogram
	node                        *consensus.Node // set before the first scrape
}

var (
	descTerm         = prometheus.NewDesc("spillway_global_raft_term", "Current Raft term of this node.", nil, nil)
	descCommitIndex  = prometheus.NewDesc("spillway_global_raft_commit_index", "Last Raft index known to be committed.", nil, nil)
	descLastIndex    = prometheus.NewDesc("spillway_global_raft_last_index", "Last Raft index stored.", nil, nil)
	descLastContact  = prometheus.NewDesc("spillway_global_raft_last_contact_seconds", "Time since the last contact with the leader; 0 on the leader; absent before the first contact.", nil, nil)
	descLeaderKnown  = prometheus.NewDesc("spillway_global_raft_leader_known", "1 while this node has a leader.", nil, nil)
	descVoters       = prometheus.NewDesc("spillway_global_raft_voters", "Voters in the Raft configuration.", nil, nil)
	descSilentVoters = prometheus.NewDesc("spillway_global_raft_unreachable_voters", "Voters without contact to this node for half a minute.", nil, nil)
	descNonMember    = prometheus.NewDesc("spillway_global_raft_not_member", "1 while other members report that this node is not a member.", nil, nil)
	descDiskFailures = prometheus.NewDesc("spillway_global_raft_disk_failures_total", "Failed writes of the Raft log to disk.", nil, nil)
)

func newRaftMetrics(reg prometheus.Registerer) *raftMetrics {
	m := &raftMetrics{
		proposals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_global_raft_proposals_total", Help: "Raft writes proposed through this node, by outcome.",
		}, []string{"outcome"}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spillway_global_raft_commit_seconds", Help: "Time from a write at the leader until it was committed and applied there.", Buckets: telemetry.WaitBuckets(),
		}),
		fsyncSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "spillway_global_raft_fsync_seconds", Help: "Time to write and fsync entries of the Raft log.", Buckets: telemetry.WaitBuckets(),
		}),
	}
	reg.MustRegister(m.proposals, m.commitSeconds, m.fsyncSeconds, m)
	return m
}

func (m *raftMetrics) countProposal(outcome string) { m.proposals.WithLabelValues(outcome).Inc() }

func (m *raftMetrics) observeCommit(took time.Duration) { m.commitSeconds.Observe(took.Seconds()) }

func (m *raftMetrics) observeDiskWrite(took time.Duration) { m.fsyncSeconds.Observe(took.Seconds()) }

// Describe sends nothing: the time of the last contact may be absent.
func (m *raftMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads the state of the consensus node.
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
	if _, outside := m.node.NonMember(); outside {
		put(descNonMember, 1)
	} else {
		put(descNonMember, 0)
	}
	put(descTerm, float64(s.Term))
	put(descCommitIndex, float64(s.CommitIndex))
	put(descLastIndex, float64(s.LastIndex))
	put(descLeaderKnown, known)
	put(descVoters, float64(len(s.Voters)))
	put(descSilentVoters, float64(len(m.node.SilentVoters())))
	if s.LastContact >= 0 {
		put(descLastContact, s.LastContact.Seconds())
	}
	out <- prometheus.MustNewConstMetric(descDiskFailures, prometheus.CounterValue, float64(m.node.DiskFailures()))
}
