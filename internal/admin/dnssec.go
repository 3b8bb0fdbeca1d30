package admin

import (
	"context"
	"net/http"
	"time"
)

const pathDNSSEC = "/v1/dnssec"

// DNSSECAnswer says how the zone is signed. It holds no secret.
type DNSSECAnswer struct {
	Node  string      `json:"node"` // who was asked
	Zone  string      `json:"zone"`
	Phase string      `json:"phase"` // "unsigned", or one of consensus's
	Since time.Time   `json:"since,omitzero"`
	Due   time.Time   `json:"due,omitzero"` // when the next step may be taken; zero: when an operator says so
	Keys  []DNSSECKey `json:"keys"`         // in the zone; the first signs answers
	DS    []string    `json:"ds"`           // what the parent zone is to have, as zone files write it
	Next  string      `json:"next"`         // what the phase waits for, in words
}

// DNSSECKey is one key of the zone, its public half.
type DNSSECKey struct {
	Tag          uint16    `json:"tag"`
	Record       string    `json:"record"` // as zone files write it
	Made         time.Time `json:"made"`
	SignsAnswers bool      `json:"signs_answers"` // and not only the set of keys
}

// DNSSECRequest takes a step that is an operator's to take.
type DNSSECRequest struct {
	Action string `json:"action"` // one of DNSSECActions
	Reason string `json:"reason,omitempty"`
}

// DNSSECActions are what may be asked for: to sign the zone, bring in another key, say that the parent zone shows what it
// is to show, and end the signing.
func DNSSECActions() []string { return []string{"enable", "roll", "seen", "disable"} }

// DNSSEC asks how the zone is signed.
func (c *Client) DNSSEC(ctx context.Context) (*DNSSECAnswer, error) {
	return call[DNSSECAnswer](ctx, c, http.MethodGet, pathDNSSEC, nil)
}

// ChangeDNSSEC changes that.
func (c *Client) ChangeDNSSEC(ctx context.Context, r DNSSECRequest) (*DNSSECAnswer, error) {
	return call[DNSSECAnswer](ctx, c, http.MethodPost, pathDNSSEC, r)
}
