package uplink

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Meters shows the sessions of a node in Prometheus. Children are summed up, since there may be thousands: each one stands
// on the page that `spillway get uplinks` prints. Parents are few, and labelled by their addresses as configured.
func Meters(p *Parent, c *Child) prometheus.Collector { return meters{p, c} }

type meters struct {
	parent *Parent
	child  *Child
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("spillway_uplink_"+name, help, labels, nil)
}

var (
	descUp         = desc("parent_up", "1 while there is a session with the parent at the address.", "parent")
	descUpRTT      = desc("parent_rtt_seconds", "Smoothed round trip to the parent, as QUIC measures it.", "parent")
	descUpAge      = desc("parent_age_seconds", "Time since the parent last said what it heard.", "parent")
	descUpVersion  = desc("parent_version", "Version of the protocol that was agreed on with the parent.", "parent")
	descChildren   = desc("children", "Sessions of children, by the version of the protocol that was agreed on.", "version")
	descOldest     = desc("children_age_seconds", "Age of the oldest of the children's last statements.")
	descFarthest   = desc("children_rtt_seconds", "The longest of the children's smoothed round trips.")
	descGap        = desc("gap_seconds", "Time that children are asked to keep between statements; 0: as they come.")
	descTurnedAway = desc("refused_total", "Connections of children that were refused or ended here, by reason.", "reason")
	descUnsent     = desc("directives_unsent_total", "Directives that could not be sent because their policy exceeds a limit: the child keeps the one it has.")
	descOmitted    = desc("directives_omitted_total", "Parts left out of directives to stay within the size limit: prefixes (of all peers), peers, reasons (of drains).", "part")
	descMessages   = desc("messages_total", "Messages of sessions by end (parent: with the tier above; child: with children) and kind; passed are those passed over, as overtaken or as more than a child may send.", "end", "kind")
	descBytes      = desc("bytes_total", "Bytes of QUIC packets, by end and direction.", "end", "direction")
	descIgnored    = desc("directives_ignored_total", "Directives of parents that were not put in force, by reason: older_index and older_generation than the one in force, or an implausible position.", "reason")
	descPackets    = desc("packets_total", "QUIC packets sent by this node, by end and outcome: sent, and lost of those.", "end", "outcome")
)

// Describe says nothing beforehand: sessions come and go.
func (m meters) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m meters) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if m.child != nil {
		m.parents(gauge)
		for reason, n := range m.child.ignoredBy() {
			out <- prometheus.MustNewConstMetric(descIgnored, prometheus.CounterValue, float64(n), reason)
		}
		sum := m.child.Traffic()
		traffic(out, "parent", &sum)
	}
	if m.parent != nil {
		m.children(gauge)
		for reason, n := range m.parent.refused.byReason() {
			out <- prometheus.MustNewConstMetric(descTurnedAway, prometheus.CounterValue, float64(n), reason)
		}
		out <- prometheus.MustNewConstMetric(descUnsent, prometheus.CounterValue, float64(m.parent.unsent.Load()))
		for i, name := range omittedNames {
			out <- prometheus.MustNewConstMetric(descOmitted, prometheus.CounterValue, float64(m.parent.omitted[i].Load()), name)
		}
		sum := m.parent.Traffic()
		traffic(out, "child", &sum)
	}
}

func (m meters) parents(gauge func(*prometheus.Desc, float64, ...string)) {
	seen := map[string]bool{}
	for _, s := range m.child.Sessions() {
		if seen[s.Address] {
			continue // given twice
		}
		seen[s.Address] = true
		if !s.Connected {
			gauge(descUp, 0, s.Address)
			continue
		}
		gauge(descUp, 1, s.Address)
		gauge(descUpRTT, s.RTT.Seconds(), s.Address)
		gauge(descUpVersion, float64(s.Version), s.Address)
		if !s.Heard.IsZero() {
			gauge(descUpAge, time.Since(s.Heard).Seconds(), s.Address)
		}
	}
}

func (m meters) children(gauge func(*prometheus.Desc, float64, ...string)) {
	var oldest, farthest time.Duration
	versions := map[uint32]int{}
	for v := uint32(minVersion); v <= version; v++ {
		versions[v] = 0
	}
	for _, i := range m.parent.Children() {
		versions[i.Version]++
		farthest = max(farthest, i.RTT)
		if !i.Last.IsZero() {
			oldest = max(oldest, time.Since(i.Last))
		}
	}
	for v, n := range versions {
		gauge(descChildren, float64(n), strconv.Itoa(int(v)))
	}
	gauge(descOldest, oldest.Seconds())
	gauge(descFarthest, farthest.Seconds())
	gauge(descGap, m.parent.pace().Seconds())
}

func traffic(out chan<- prometheus.Metric, end string, t *Traffic) {
	count := func(d *prometheus.Desc, v uint64, label string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), end, label)
	}
	count(descMessages, t.Deltas, "delta")
	count(descMessages, t.Snapshots, "snapshot")
	count(descMessages, t.Directives, "directive")
	count(descMessages, t.Passed, "passed")
	count(descBytes, t.BytesIn, "in")
	count(descBytes, t.BytesOut, "out")
	count(descPackets, t.PacketsSent, "sent")
	count(descPackets, t.PacketsLost, "lost")
}
