package admin

import (
	"context"
	"net/http"
)

const pathUplinks = "/v1/uplinks"

// UplinksAnswer describes a node's uplink sessions: to the tier above it, and with the children below.
type UplinksAnswer struct {
	Node     string          `json:"node"`
	Parents  []UplinkSession `json:"parents"`
	Children []UplinkSession `json:"children"`
	// GapMS is the minimum time between two reports that the node requests of its children; 0: none.
	GapMS int64 `json:"gap_ms"`
	// Refused counts the sessions of children that this node refused or closed, by reason.
	Refused map[string]uint64 `json:"refused,omitempty"`
}

// UplinkRefused is the State of a child whose last session was refused within the last ten minutes. SinceMS is the time
// since then.
const UplinkRefused = "refused"

// UplinkSession is one session, with the counters of this end.
type UplinkSession struct {
	Peer        string  `json:"peer"` // identity in the peer's certificate; empty for a parent that was not reached yet
	Path        string  `json:"path,omitempty"`
	Address     string  `json:"address"`
	State       string  `json:"state"` // "connected", "down", or of a child "refused"
	Error       string  `json:"error,omitempty"`
	Version     uint32  `json:"version,omitempty"` // negotiated protocol version
	SinceMS     int64   `json:"since_ms"`          // since the last change of State
	AgeMS       int64   `json:"age_ms"`            // since the last acknowledgement of a parent, or report of a child; -1: none yet
	RTTMS       float64 `json:"rtt_ms"`
	Loss        float64 `json:"loss"` // share of the packets sent by this end that were lost
	GapMS       int64   `json:"gap_ms,omitempty"`
	BytesIn     uint64  `json:"bytes_in"`
	BytesOut    uint64  `json:"bytes_out"`
	PacketsSent uint64  `json:"packets_sent"`
	PacketsLost uint64  `json:"packets_lost"`
	Deltas      uint64  `json:"deltas"`
	Snapshots   uint64  `json:"snapshots"`
	Directives  uint64  `json:"directives"`
	// Generation and Index are those of the parent's last directive, or of the directive in force at a child; both 0: unknown.
	Generation uint64 `json:"generation,omitempty"`
	Index      uint64 `json:"index,omitempty"`
	// Ignored is why the child ignores the parent's directives: "older_index", "older_generation" or "implausible"; empty if
	// it does not.
	Ignored string `json:"ignored,omitempty"`
	Passed  uint64 `json:"passed"` // discarded messages: out of date, or above the rate that a child may send
}

// GetUplinks returns the sessions of a node.
func (c *Client) GetUplinks(ctx context.Context) (*UplinksAnswer, error) {
	return callNode[UplinksAnswer](ctx, c, http.MethodGet, pathUplinks, nil)
}
