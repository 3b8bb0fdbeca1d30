package admin

import (
	"context"
	"net/http"
	"time"
)

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
