package consensus

import (
	"log/slog"
	"time"
)

// ticketKeySize is the length of a ticket key in bytes.
const ticketKeySize = 32

// TicketKey signs redirect tickets. Its secret is never logged.
type TicketKey struct {
	Secret []byte `json:"-"`
	At     time.Time
}

// String hides the secret.
func (k TicketKey) String() string { return "ticket key of " + k.At.Format(time.RFC3339) }

// GoString hides the secret.
func (k TicketKey) GoString() string { return k.String() }

// LogValue hides the secret.
func (k TicketKey) LogValue() slog.Value { return slog.StringValue(k.String()) }
