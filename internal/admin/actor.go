package admin

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"github.com/spillway-lb/spillway/internal/identity"
)

type uidKey struct{}

// withUID remembers who opened a connection to the socket, where the system tells.
func withUID(ctx context.Context, c net.Conn) context.Context {
	if uid, ok := peerUID(c); ok {
		return context.WithValue(ctx, uidKey{}, uid)
	}
	return ctx
}

// actor names who is calling, for the audit: a certificate's identity, or a user of this machine.
func actor(r *http.Request) string {
	if r.TLS != nil {
		if id, err := identity.PeerID(*r.TLS); err == nil {
			return id.String()
		}
	}
	if uid, ok := r.Context().Value(uidKey{}).(uint32); ok {
		return "uid:" + strconv.FormatUint(uint64(uid), 10)
	}
	return "local"
}
