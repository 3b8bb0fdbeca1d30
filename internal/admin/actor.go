package admin

import (
	"context"
	"net"
	"net/http"
	"strconv"

	"github.com/spillway-lb/spillway/internal/identity"
)

type peerUIDKey struct{}

// withPeerUID stores the user id of the process that connected to the socket, if the system reports it.
func withPeerUID(ctx context.Context, c net.Conn) context.Context {
	if uid, ok := peerUID(c); ok {
		return context.WithValue(ctx, peerUIDKey{}, uid)
	}
	return ctx
}

// actorOf returns the caller's name for the audit log: the identity of its certificate, or a user of this machine.
func actorOf(r *http.Request) string {
	if r.TLS != nil {
		if id, err := identity.PeerID(*r.TLS); err == nil {
			return id.String()
		}
	}
	if uid, ok := r.Context().Value(peerUIDKey{}).(uint32); ok {
		return "uid:" + strconv.FormatUint(uint64(uid), 10)
	}
	return "local"
}
