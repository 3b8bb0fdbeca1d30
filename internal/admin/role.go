package admin

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/spillway-lb/spillway/internal/console"
	"github.com/spillway-lb/spillway/internal/identity"
)

// Role is a set of permissions. Each role includes those before it.
type Role uint8

// The roles.
const (
	NoRole       Role = iota
	RoleViewer        // read: status, explain, the spec, drains, queues, the audit log
	RoleOperator      // operate: apply, drain, undrain, profiles
	RoleAdmin         // administer the cluster: members, leadership, keys, snapshots (which contain secrets)
)

var roleNames = [...]string{"none", "viewer", "operator", "admin"}

// String returns the role's name in config files.
func (r Role) String() string { return roleNames[min(int(r), len(roleNames)-1)] }

// ParseRole parses viewer, operator or admin.
func ParseRole(s string) (Role, error) {
	for r := RoleViewer; r <= RoleAdmin; r++ {
		if s == r.String() {
			return r, nil
		}
	}
	return NoRole, fmt.Errorf("unknown role %q: write viewer, operator or admin", s)
}

// RoleGrant grants a role to a caller from the network.
type RoleGrant struct {
	// Name is the name in an operator's certificate or, with Token, the caller's name in the audit log.
	Name string
	Role Role
	// Token is the hash of a bearer token, "sha256:" and 64 hex digits; empty: a certificate is needed.
	Token string
}

// maxTokenBytes bounds the bearer tokens that are hashed, in bytes.
const maxTokenBytes = 512

// checkGrants reports the first mistake in a list of grants.
func checkGrants(grants []RoleGrant) error {
	names := map[string]bool{}
	for _, g := range grants {
		sum, isHash := strings.CutPrefix(g.Token, "sha256:")
		raw, err := hex.DecodeString(sum)
		switch {
		case g.Name == "":
			return errors.New("a grant needs a name: that of the operator's certificate, or any name for a token")
		case names[g.Name]:
			return fmt.Errorf("two grants are for %q: keep one", g.Name)
		case g.Role == NoRole:
			return fmt.Errorf("the grant for %s has no role: write viewer, operator or admin", g.Name)
		case g.Token != "" && (!isHash || err != nil || len(raw) != sha256.Size):
			return fmt.Errorf("the token of %s is not a hash: `spillway config key` prints a token, and its hash for the config", g.Name)
		}
		names[g.Name] = true
	}
	return nil
}

// identifyCaller returns the caller's name and role.
func (s *Server) identifyCaller(r *http.Request) (name string, role Role) {
	if r.TLS == nil {
		return actorOf(r), RoleAdmin // the mode of the socket admits only its owner
	}
	if id, err := identity.PeerID(*r.TLS); err == nil {
		return id.String(), s.certificateRole(id.Name)
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		token = console.TokenOf(r, console.SecureCookieName)
	}
	return s.identifyToken(token)
}

// identifyToken returns the name and role of a token's holder.
func (s *Server) identifyToken(token string) (name string, role Role) {
	if token == "" || len(token) > maxTokenBytes {
		return "", NoRole
	}
	sum := sha256.Sum256([]byte(token))
	hash := "sha256:" + hex.EncodeToString(sum[:])
	for _, g := range s.cfg.Grants {
		if g.Token != "" && subtle.ConstantTimeCompare([]byte(strings.ToLower(g.Token)), []byte(hash)) == 1 {
			name, role = "token:"+g.Name, g.Role
		}
	}
	return name, role
}

// certificateRole returns the role of an operator's certificate: that of its grant, or RoleAdmin if no grant is for a
// certificate.
func (s *Server) certificateRole(name string) Role {
	role := RoleAdmin
	for _, g := range s.cfg.Grants {
		if g.Token != "" {
			continue
		}
		if g.Name == name {
			return g.Role
		}
		role = NoRole
	}
	return role
}

// acceptsTokens reports whether a caller may authenticate by a token.
func (s *Server) acceptsTokens() bool {
	for _, g := range s.cfg.Grants {
		if g.Token != "" {
			return true
		}
	}
	return false
}

func newDeniedError(name string, has, needs Role) *Error {
	if name == "" {
		return &Error{
			Status: http.StatusUnauthorized, Message: "authentication required: use an operator's certificate, or a bearer token listed in admin.grants",
		}
	}
	return &Error{
		Status:  http.StatusForbidden,
		Message: fmt.Sprintf("permission denied: %s has the role %s, this call needs %s", name, has, needs),
		Hint:    "roles are granted by admin.grants in the node's config",
	}
}

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
