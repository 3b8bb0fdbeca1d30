package consensus

import (
	"log/slog"
	"time"
)

// keySize is the length of a ticket key in bytes.
const keySize = 32

// Key signs redirect tickets. Its secret is written to no log.
type Key struct {
	Secret []byte `json:"-"`
	At     time.Time
}

// String hides the secret.
func (k Key) String() string { return "ticket key of " + k.At.Format(time.RFC3339) }

// GoString hides the secret.
func (k Key) GoString() string { return k.String() }

// LogValue hides the secret.
func (k Key) LogValue() slog.Value { return slog.StringValue(k.String()) }
