package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spillway-lb/spillway/internal/identity"
)

// Role is what a caller may do. Each may do what the ones before it may.
type Role uint8

// The roles.
const (
	Nobody   Role = iota
	Viewer        // look: status, explain, the spec, drains, queues, the audit
	Operator      // run the fleet: apply, drain, undrain, profiles
	Admin         // the cluster itself: members, leadership, the zone's keys, snapshots, which hold secrets
)

var roleNames = [...]string{"nobody", "viewer", "operator", "admin"}

// String is the role's word in configuration files.
func (r Role) String() string { return roleNames[min(int(r), len(roleNames)-1)] }

// ParseRole reads viewer, operator or admin.
func ParseRole(s string) (Role, error) {
	for r := Viewer; r <= Admin; r++ {
		if s == r.String() {
			return r, nil
		}
	}
	return Nobody, fmt.Errorf("unknown role %q: write viewer, operator or admin", s)
}

// Grant gives a caller from the network its role.
type Grant struct {
	// Name is the name in an operator's certificate or, with Token, what the audit calls the caller.
	Name string
	Role Role
	// Token is the hash of a bearer token, "sha256:" and 64 hex digits; empty: a certificate is needed.
	Token string
}

// maxToken bounds the bearer tokens that are hashed at all, in bytes.
const maxToken = 512

// check finds mistakes in a list of grants.
func check(grants []Grant) error {
	names := map[string]bool{}
	for _, g := range grants {
		sum, isHash := strings.CutPrefix(g.Token, "sha256:")
		raw, err := hex.DecodeString(sum)
		switch {
		case g.Name == "":
			return errors.New("a grant needs a name: that of the operator's certificate, or any with a token")
		case names[g.Name]:
			return fmt.Errorf("two grants are for %q: keep one", g.Name)
		case g.Role == Nobody:
			return fmt.Errorf("the grant for %s has no role: write viewer, operator or admin", g.Name)
		case g.Token != "" && (!isHash || err != nil || len(raw) != sha256.Size):
			return fmt.Errorf("the token of %s is no hash: `spillway config key` prints a token, and the hash that belongs here", g.Name)
		}
		names[g.Name] = true
	}
	return nil
}

// caller is who is asking, and what it may do.
func (s *Server) caller(r *http.Request) (name string, role Role) {
	if r.TLS == nil {
		return actor(r), Admin // the socket's mode lets its owner in, and nobody else
	}
	if id, err := identity.PeerID(*r.TLS); err == nil {
		return id.String(), s.granted(id.Name)
	}
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || len(token) > maxToken {
		return "", Nobody
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

// granted is the role of an operator's certificate: that of its grant or, where no grant is for a certificate, Admin.
func (s *Server) granted(name string) Role {
	role := Admin
	for _, g := range s.cfg.Grants {
		if g.Token != "" {
			continue
		}
		if g.Name == name {
			return g.Role
		}
		role = Nobody
	}
	return role
}

// takesTokens reports whether a caller may come without a certificate.
func (s *Server) takesTokens() bool {
	for _, g := range s.cfg.Grants {
		if g.Token != "" {
			return true
		}
	}
	return false
}

func denied(name string, has, needs Role) *Error {
	if name == "" {
		return &Error{
			Status: http.StatusUnauthorized, Message: "who are you? show an operator's certificate, or a bearer token that admin.grants lists",
		}
	}
	return &Error{
		Status:  http.StatusForbidden,
		Message: fmt.Sprintf("%s has the role %s, and this needs %s", name, has, needs),
		Hint:    "admin.grants in the node's configuration gives roles",
	}
}
