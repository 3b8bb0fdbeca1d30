package uplink

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/quic-go/quic-go"
)

// NewCollector exports the sessions of a node to Prometheus. Children are summed up, because there may be thousands:
// `spillway get uplinks` lists each of them. Parents are few, and labelled with their configured addresses.
func NewCollector(p *Parent, c *Child) prometheus.Collector { return uplinkCollector{p, c} }

type uplinkCollector struct {
	parent *Parent
	child  *Child
}

func newDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("spillway_uplink_"+name, help, labels, nil)
}

var (
	descParentUp      = newDesc("parent_up", "1 while there is a session with the parent at the address.", "parent")
	descParentRTT     = newDesc("parent_rtt_seconds", "Smoothed RTT to the parent, measured by QUIC.", "parent")
	descParentAge     = newDesc("parent_age_seconds", "Time since the last acknowledgement of the parent.", "parent")
	descParentVersion = newDesc("parent_version", "Negotiated protocol version of the session with the parent.", "parent")
	descChildren      = newDesc("children", "Sessions of children, by negotiated protocol version.", "version")
	descChildrenAge   = newDesc("children_age_seconds", "Age of the oldest of the children's last reports.")
	descChildrenRTT   = newDesc("children_rtt_seconds", "The greatest of the children's smoothed RTTs.")
	descSummaryGap    = newDesc("gap_seconds", "Minimum time between reports that children are asked to keep; 0: no minimum.")
	descRefused       = newDesc("refused_total", "Sessions of children that this node refused or closed, by reason.", "reason")
	descUnsent        = newDesc("directives_unsent_total", "Directives that could not be sent because their policy exceeds a limit: the child keeps its earlier policy.")
	descOmitted       = newDesc("directives_omitted_total", "Parts left out of directives to stay within the size limit: prefixes (of all peers), peers, reasons (of drains).", "part")
	descMessages      = newDesc("messages_total", "Messages of sessions, by end (parent: with the tier above; child: with children) and kind; passed counts discarded ones: out of date, or above the rate that a child may send.", "end", "kind")
	descBytes         = newDesc("bytes_total", "Bytes of QUIC packets, by end and direction.", "end", "direction")
	descIgnored       = newDesc("directives_ignored_total", "Directives of parents that were ignored, by reason: older_index or older_generation than the one in force, or an implausible position.", "reason")
	descPackets       = newDesc("packets_total", "QUIC packets sent by this node, by end and outcome: sent, and lost of those.", "end", "outcome")
)

// Describe sends no descriptions: sessions come and go.
func (m uplinkCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m uplinkCollector) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if m.child != nil {
		m.collectParents(gauge)
		for reason, n := range m.child.ignoredByReason() {
			out <- prometheus.MustNewConstMetric(descIgnored, prometheus.CounterValue, float64(n), reason)
		}
		sum := m.child.Traffic()
		collectTraffic(out, "parent", &sum)
	}
	if m.parent != nil {
		m.collectChildren(gauge)
		for reason, n := range m.parent.refusals.countByReason() {
			out <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(n), reason)
		}
		out <- prometheus.MustNewConstMetric(descUnsent, prometheus.CounterValue, float64(m.parent.unsentDirectives.Load()))
		for i, name := range omittedNames {
			out <- prometheus.MustNewConstMetric(descOmitted, prometheus.CounterValue, float64(m.parent.omittedParts[i].Load()), name)
		}
		sum := m.parent.Traffic()
		collectTraffic(out, "child", &sum)
	}
}

func (m uplinkCollector) collectParents(gauge func(*prometheus.Desc, float64, ...string)) {
	seen := map[string]bool{}
	for _, s := range m.child.Sessions() {
		if seen[s.Address] {
			continue // configured twice
		}
		seen[s.Address] = true
		if !s.Connected {
			gauge(descParentUp, 0, s.Address)
			continue
		}
		gauge(descParentUp, 1, s.Address)
		gauge(descParentRTT, s.RTT.Seconds(), s.Address)
		gauge(descParentVersion, float64(s.Version), s.Address)
		if !s.ConfirmedAt.IsZero() {
			gauge(descParentAge, time.Since(s.ConfirmedAt).Seconds(), s.Address)
		}
	}
}

func (m uplinkCollector) collectChildren(gauge func(*prometheus.Desc, float64, ...string)) {
	var oldest, farthest time.Duration
	versions := map[uint32]int{}
	for v := uint32(minProtocolVersion); v <= protocolVersion; v++ {
		versions[v] = 0
	}
	for _, i := range m.parent.Children() {
		versions[i.Version]++
		farthest = max(farthest, i.RTT)
		if !i.LastSummaryAt.IsZero() {
			oldest = max(oldest, time.Since(i.LastSummaryAt))
		}
	}
	for v, n := range versions {
		gauge(descChildren, float64(n), strconv.Itoa(int(v)))
	}
	gauge(descChildrenAge, oldest.Seconds())
	gauge(descChildrenRTT, farthest.Seconds())
	gauge(descSummaryGap, m.parent.summaryGap().Seconds())
}

func collectTraffic(out chan<- prometheus.Metric, end string, t *Traffic) {
	count := func(d *prometheus.Desc, v uint64, label string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), end, label)
	}
	count(descMessages, t.Deltas, "delta")
	count(descMessages, t.Snapshots, "snapshot")
	count(descMessages, t.Directives, "directive")
	count(descMessages, t.Skipped, "passed")
	count(descBytes, t.BytesIn, "in")
	count(descBytes, t.BytesOut, "out")
	count(descPackets, t.PacketsSent, "sent")
	count(descPackets, t.PacketsLost, "lost")
}

// sessionCounters counts the traffic of one session, at either end.
type sessionCounters struct {
	deltas, snapshots, directives, skipped atomic.Uint64
}

// Traffic is the traffic of one session, as counted by one end.
type Traffic struct {
	// Version of the protocol that both ends agreed on.
	Version uint32
	// RTT as QUIC measures it; zero while not connected.
	RTT time.Duration
	// Deltas and Snapshots that came up, and Directives that went down.
	Deltas, Snapshots, Directives uint64
	// Skipped are messages that arrived and were not used: superseded by newer ones, without their snapshot, or above
	// the message bound.
	Skipped uint64
	// BytesIn and BytesOut are those of QUIC packets.
	BytesIn, BytesOut uint64
	// PacketsSent by this end, and of those the PacketsLost.
	PacketsSent, PacketsLost uint64
}

func (s *sessionCounters) readTraffic(conn *quic.Conn, version uint32) Traffic {
	q := conn.ConnectionStats()
	return Traffic{
		Version: version, RTT: q.SmoothedRTT,
		Deltas: s.deltas.Load(), Snapshots: s.snapshots.Load(), Directives: s.directives.Load(), Skipped: s.skipped.Load(),
		BytesIn: q.BytesReceived, BytesOut: q.BytesSent, PacketsSent: q.PacketsSent, PacketsLost: q.PacketsLost,
	}
}
