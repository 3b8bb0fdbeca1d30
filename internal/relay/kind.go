package relay

import (
	"net/http"
	"strings"

	"github.com/spillway-lb/spillway/internal/grpcwire"
)

// Kind is how a request passes whose body is none of ours to read.
type Kind uint8

// The kinds.
const (
	// Usual requests are read whole before they go on.
	Usual Kind = iota
	// GRPC calls stream both ways, and end with trailers.
	GRPC
	// WebSocket connections are a worker's from the upgrade on (RFC 6455; by HTTP/1.1 alone).
	WebSocket
	// Other POSTs name their model in a header.
	Other
)

// Headers that name the model of a request whose body is not read: ours, and that of Gateway API's inference extension.
const (
	HeaderClientModel  = "X-Model"
	HeaderGatewayModel = "X-Gateway-Model-Name"
	// ParamModel does so in the query, for browsers, which cannot set headers of a WebSocket.
	ParamModel = "model"
)

// KindOf is how a request passes. One to a path that is known passes as usual, whatever headers it has.
func KindOf(r *http.Request) Kind {
	switch {
	case r.Method == http.MethodPost && grpcwire.Is(First(r.Header, "Content-Type")):
		return GRPC
	case r.Method == http.MethodGet && r.ProtoMajor == 1 && upgrades(r.Header):
		return WebSocket
	case r.Method == http.MethodPost && NamedModel(r) != "":
		return Other
	}
	return Usual
}

// upgrades reports whether a client asks for a WebSocket.
func upgrades(h http.Header) bool {
	if !strings.EqualFold(First(h, "Upgrade"), "websocket") {
		return false
	}
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(name), "upgrade") {
				return true
			}
		}
	}
	return false
}

// NamedModel is the model that a request names beside its body; empty when it names none.
func NamedModel(r *http.Request) string {
	for _, name := range [...]string{HeaderClientModel, HeaderGatewayModel} {
		if v := First(r.Header, name); v != "" {
			return v
		}
	}
	if r.Method == http.MethodGet {
		return r.URL.Query().Get(ParamModel)
	}
	return ""
}
