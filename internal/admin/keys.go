package admin

import (
	"context"
	"net/http"
	"time"
)

const pathDNSSEC = "/v1/dnssec"

// DNSSECAnswer is the signing state of the zone. It contains no secret.
type DNSSECAnswer struct {
	Node  string      `json:"node"` // the node that answered
	Zone  string      `json:"zone"`
	Phase string      `json:"phase"` // "unsigned", or a phase of package consensus
	Since time.Time   `json:"since,omitzero"`
	Due   time.Time   `json:"due,omitzero"` // earliest time of the next step; zero: it needs an operator
	Keys  []DNSSECKey `json:"keys"`         // published keys; the first signs answers
	DS    []string    `json:"ds"`           // required DS records of the parent zone, in zone file format
	Next  string      `json:"next"`         // the next step, as text
}

// DNSSECKey is one public key of the zone.
type DNSSECKey struct {
	Tag          uint16    `json:"tag"`
	Record       string    `json:"record"` // in zone file format
	Made         time.Time `json:"made"`
	SignsAnswers bool      `json:"signs_answers"` // and not only the DNSKEY RRset
}

// DNSSECRequest requests a change of the signing state.
type DNSSECRequest struct {
	Action string `json:"action"` // one of DNSSECActions
	Reason string `json:"reason,omitempty"`
}

// DNSSECActions lists the actions: enable signing, roll the key, confirm the DS record of the parent zone (seen), disable
// signing.
func DNSSECActions() []string { return []string{"enable", "roll", "seen", "disable"} }

// GetDNSSEC returns the signing state of the zone.
func (c *Client) GetDNSSEC(ctx context.Context) (*DNSSECAnswer, error) {
	return callNode[DNSSECAnswer](ctx, c, http.MethodGet, pathDNSSEC, nil)
}

// ChangeDNSSEC requests a change of the signing state.
func (c *Client) ChangeDNSSEC(ctx context.Context, r DNSSECRequest) (*DNSSECAnswer, error) {
	return callNode[DNSSECAnswer](ctx, c, http.MethodPost, pathDNSSEC, r)
}

const pathTickets = "/v1/tickets"

// TicketsRequest creates a new key for redirect tickets.
type TicketsRequest struct {
	// Purge removes all earlier keys. Redirects in flight are refused, and their clients have to call again.
	Purge  bool   `json:"purge,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// TicketsAnswer contains the creation times of the valid keys, newest first.
type TicketsAnswer struct {
	Keys []time.Time `json:"keys"`
}

// RotateTickets creates a new key for redirect tickets.
func (c *Client) RotateTickets(ctx context.Context, r TicketsRequest) (*TicketsAnswer, error) {
	return callNode[TicketsAnswer](ctx, c, http.MethodPost, pathTickets, r)
}
