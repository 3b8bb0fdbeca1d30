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
	// GapMS is what the node asks its children to keep between two statements; 0: it takes them as they come.
	GapMS int64 `json:"gap_ms"`
	// Refused counts connections of children that were refused or ended by this node, by reason.
	Refused map[string]uint64 `json:"refused,omitempty"`
}

// UplinkRefused is the State of a child whose last session was refused within the last ten minutes. SinceMS is the time
// since then.
const UplinkRefused = "refused"

// UplinkSession is one session, as this end counts it.
type UplinkSession struct {
	Peer        string  `json:"peer"` // the certificate's identity; empty for a parent that was never reached
	Path        string  `json:"path,omitempty"`
	Address     string  `json:"address"`
	State       string  `json:"state"` // "connected", "down", or of a child "refused"
	Error       string  `json:"error,omitempty"`
	Version     uint32  `json:"version,omitempty"` // of the protocol, agreed on
	SinceMS     int64   `json:"since_ms"`          // since it is in that state
	AgeMS       int64   `json:"age_ms"`            // since a parent last said what it heard, or a child's last statement; -1: never
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
	// Generation and Index are of the parent's last directive, or of the directive in force at a child; 0 and 0: unknown.
	Generation uint64 `json:"generation,omitempty"`
	Index      uint64 `json:"index,omitempty"`
	// Ignored is why the child does not follow the parent's directives: "older_index", "older_generation" or
	// "implausible"; empty when it does.
	Ignored string `json:"ignored,omitempty"`
	Passed  uint64 `json:"passed"` // messages passed over: overtaken, or more than a child may send
}

// Uplinks asks a node for its sessions.
func (c *Client) Uplinks(ctx context.Context) (*UplinksAnswer, error) {
	return call[UplinksAnswer](ctx, c, http.MethodGet, pathUplinks, nil)
}
