package liveness

import (
	"encoding/json"
	"errors"
	"slices"

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
