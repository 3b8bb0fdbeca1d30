package liveness

import (
	"slices"

	"github.com/spillway-lb/spillway/global/steer"
)

// Votes joins the nodes' reports on regions at one moment.
type Votes struct {
	// Self is this node's name. Voters are the names of the nodes with a vote, including this one if it has one.
	Self   string
	Voters []string
	// Reports are the valid reports of the other nodes, by name.
	Reports map[string]PeerReport
	// Suppressed are the regions, by index in the spec, whose silence at this node proves nothing.
	Suppressed steer.RegionSet
}

// ReportersOf returns the names of the other nodes that reach a region, in order.
func (q *Votes) ReportersOf(region string) (nodes []string) {
	for name, t := range q.Reports {
		if t.reachesRegion(region) {
			nodes = append(nodes, name)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// IsDead reports whether a majority of the voters does not reach a region, given that this node does not.
func (q *Votes) IsDead(region string) bool { return 2*q.countLost(region, true) > len(q.Voters) }

// isDeadForOthers reports whether the other nodes alone are a majority that does not reach a region. Then it does not
// matter whether this node reaches it.
func (q *Votes) isDeadForOthers(region string) bool {
	return 2*q.countLost(region, false) > len(q.Voters)
}

// countLost counts the voters that have lost a region. self is this node's own vote.
func (q *Votes) countLost(region string, self bool) (lost int) {
	for _, name := range q.Voters {
		t, reported := q.Reports[name]
		if name == q.Self && self || name != q.Self && reported && t.Settled && !t.reachesRegion(region) {
			lost++
		}
	}
	return lost
}

// AddSuppressed adds the regions whose silence at this node proves nothing. regions are the names of all regions by
// index. What the others decide without this node remains.
func (q *Votes) AddSuppressed(regions []string, silent steer.RegionSet) {
	for i, name := range regions {
		if silent.Has(i) && !q.isDeadForOthers(name) {
			q.Suppressed.Add(i)
		}
	}
}
