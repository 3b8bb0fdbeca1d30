package admin

import (
	"context"
	"net/http"
	"time"
)

const pathTickets = "/v1/tickets"

// TicketsRequest makes a new key for redirect tickets.
type TicketsRequest struct {
	// Purge removes all earlier keys. Redirects on their way are refused, and clients have to call again.
	Purge  bool   `json:"purge,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// TicketsAnswer says when the keys in force were made, newest first.
type TicketsAnswer struct {
	Keys []time.Time `json:"keys"`
}

// RotateTickets makes a new key for redirect tickets.
func (c *Client) RotateTickets(ctx context.Context, r TicketsRequest) (*TicketsAnswer, error) {
	return call[TicketsAnswer](ctx, c, http.MethodPost, pathTickets, r)
}
