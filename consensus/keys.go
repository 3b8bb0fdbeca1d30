package consensus

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"errors"
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

// ZoneKey is an ECDSA P-256 private key that signs the zone. Its secret is never logged.
type ZoneKey struct {
	Secret []byte `json:"-"` // the scalar
	At     time.Time
}

// zoneKeySize is the length of a zone key's secret in bytes.
const zoneKeySize = 32

// String hides the secret.
func (k ZoneKey) String() string { return "zone key of " + k.At.Format(time.RFC3339) }

// GoString hides the secret.
func (k ZoneKey) GoString() string { return k.String() }

// LogValue hides the secret.
func (k ZoneKey) LogValue() slog.Value { return slog.StringValue(k.String()) }

func (k ZoneKey) checkKey() error {
	if _, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), k.Secret); err != nil || len(k.Secret) != zoneKeySize {
		return errors.New("the zone key is not an ECDSA P-256 private key")
	}
	return nil
}
