package snapshot

import (
	"net/netip"
	"strings"

	"github.com/spillway-lb/spillway/internal/capacity"
)

// Reachability is what is known of a region: from this node's own reports, those of the other nodes, and the votes.
type Reachability uint8

// The values of Reachability. From PeersOnly on, this node does not reach the region.
const (
	// Unknown: no gateway has reported, and this node has not been up for long enough to take that for a loss.
	Unknown Reachability = iota
	// Reporting: a gateway reports.
	Reporting
	// Stale: the newest report is old, and not old enough for a loss.
	Stale
	// PeersOnly: other nodes reach the region. It stays in answers and plans.
	PeersOnly
	// SilenceSuppressed: this node has lost its own links, so the silence proves nothing. As PeersOnly.
	SilenceSuppressed
	// LostByMajority: a majority of the voters does not reach the region, another node does. It stays in answers, and
	// plans do without it.
	LostByMajority
	// LostByAll: no node reaches the region, and no majority of the voters has confirmed that. It is in no answer
	// while another region is left, and plans count it.
	LostByAll
	// Dead: no node reaches the region, and a majority of the voters has confirmed that.
	Dead
)

// Region is the state of one region as this node knows it.
type Region struct {
	// Group joins the reports of the region's gateways; empty if none has ever reported.
	Group   capacity.SubtreeSummary
	State   Reachability
	Drained bool
	// ReachedBy are the names of the other nodes that reach the region; set from PeersOnly on.
	ReachedBy []string
	// Addrs are the addresses of the healthy gateways, or of all if none is healthy.
	Addrs []netip.Addr
	// Waits are the predicted waits by service, in seconds.
	Waits []float64
}

// HasReport reports whether any gateway has ever reported.
func (r *Region) HasReport() bool { return r.Group.Children+r.Group.Unreachable > 0 }

// IsUnreachable reports whether this node does not reach the region.
func (r *Region) IsUnreachable() bool { return r.State >= PeersOnly }

// IsUnreachableByAll reports whether neither this node nor any other reaches the region.
func (r *Region) IsUnreachableByAll() bool { return r.State >= LostByAll }

// IsDead reports whether a majority of the voters does not reach the region: plans do without it.
func (r *Region) IsDead() bool { return r.State == LostByMajority || r.State == Dead }

// DescribeReachability describes a region that only other nodes reach.
func (r *Region) DescribeReachability() string {
	out := "unreachable from this node, reachable from " + strings.Join(r.ReachedBy, ", ")
	if r.IsDead() {
		return out + ": a majority of the nodes has lost it, so plans do without it"
	}
	return out + ": look at the network between this node and its gateways"
}
