package fleet

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"sort"
	"time"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/identity"
)

// Zone is the DNS zone of every planet, under the top-level domain that RFC 2606 reserves for tests, and Service is
// the name in it that clients use.
const (
	Zone    = "spillway.test."
	Service = "chat." + Zone
)

// certTTL is how long a planet's certificates last: longer than anyone runs a demo, shorter than a secret may live.
const certTTL = 30 * 24 * time.Hour

// Planet is a layout written down in a folder: certificates, keys, spec and one config file for each node.
type Planet struct {
	Dir    string
	Layout Layout
	Nodes  []Node // in starting order
}

// Tenants of every planet, with a key of their own each; the third only where there is a region in the EU.
var tenants = []string{"acme", "nightly", "berlin"}

// Write lays a planet out in dir. A folder that already holds one keeps its certificates, keys and state: only missing
// files are written, and a layout that differs from the one it was made with is refused.
func Write(dir string, l Layout) (*Planet, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("finding the planet's folder: %w", err)
	}
	p := &Planet{Dir: dir, Layout: l, Nodes: l.Nodes()}
	if err := p.sameLayout(); err != nil {
		return nil, err
	}
	for _, step := range []func() error{p.writeLayout, p.writeKeys, p.writeCerts, p.writeSpec, p.writeNodes} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("writing the planet to %s: %w", dir, err)
		}
	}
	return p, nil
}

// Config is the path of a node's config file.
func (p *Planet) Config(n Node) string { return filepath.Join(p.Dir, n.ID()+".yaml") }

// Spec is the path of the planet's first spec.
func (p *Planet) Spec() string { return filepath.Join(p.Dir, "spec.yaml") }

// Key reads a tenant's API key, which only its file holds.
func (p *Planet) Key(tenant string) (string, error) {
	b, err := os.ReadFile(p.keyPath(tenant))
	return string(b), err
}

// Tenants lists who may ask on this planet.
func (p *Planet) Tenants() []string {
	if p.has("eu") {
		return tenants
	}
	return tenants[:2]
}

// Of lists the nodes of one role, in order.
func (p *Planet) Of(role string) []Node {
	var out []Node
	for _, n := range p.Nodes {
		if n.Role == role {
			out = append(out, n)
		}
	}
	return out
}

// DNS lists the addresses of the global nodes' name servers.
func (p *Planet) DNS() []netip.AddrPort {
	var out []netip.AddrPort
	for _, n := range p.Of("global") {
		out = append(out, n.Addr["dns"])
	}
	return out
}

// Source is a loopback address that poses as a client in the i-th site. Without the rest of 127.0.0.0/8 there is none.
func (p *Planet) Source(i int) (netip.Addr, bool) {
	if p.Layout.OneAddress {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte{127, byte(sourceNet + i), 0, 1}), true
}

// sourceNet is the second byte of the first site's source addresses; see places.csv.
const sourceNet = 100

func (p *Planet) has(residency string) bool {
	for _, s := range Sites()[:p.Layout.Regions] {
		if s.Residency == residency {
			return true
		}
	}
	return false
}

func (p *Planet) keyPath(tenant string) string { return filepath.Join(p.Dir, "keys", tenant+".key") }

// writeKeys draws an API key for each tenant: no planet shares a secret with another.
func (p *Planet) writeKeys() error {
	if err := os.MkdirAll(filepath.Join(p.Dir, "keys"), 0o700); err != nil {
		return err
	}
	for _, t := range p.Tenants() {
		if _, err := os.Stat(p.keyPath(t)); err == nil {
			continue
		}
		var b [24]byte
		if _, err := rand.Read(b[:]); err != nil {
			return err
		}
		if err := os.WriteFile(p.keyPath(t), []byte("sk-"+t+"-"+base64.RawURLEncoding.EncodeToString(b[:])), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeCerts makes a development CA and one certificate for each node that speaks mutual TLS, and one for the operator.
func (p *Planet) writeCerts() error {
	ca, err := identity.NewDevCA(p.certDir(), "spillway.test")
	if err != nil {
		return err
	}
	ids := []identity.ID{{TrustDomain: "spillway.test", Role: identity.RoleOperator, Name: "operator"}}
	for _, n := range p.Nodes {
		if id, ok := n.identity(); ok {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		if _, err := os.Stat(id.FilesIn(p.certDir()).Cert); err == nil {
			continue
		}
		if _, err := ca.Issue(id, p.certDir(), certTTL); err != nil {
			return err
		}
	}
	return nil
}

func (p *Planet) certDir() string { return filepath.Join(p.Dir, "certs") }

// identity is what the node's certificate says; workers have none.
func (n Node) identity() (identity.ID, bool) {
	id := identity.ID{TrustDomain: "spillway.test", Region: n.Region, Zone: n.Zone, Name: n.Name}
	switch n.Role {
	case "global":
		id.Role = identity.RoleGlobal
	case "regional":
		id.Role = identity.RoleGateway
	case "local":
		id.Role = identity.RoleLocal
	default:
		return identity.ID{}, false
	}
	return id, true
}

// Socket is where a node's admin interface listens.
func (n Node) Socket() string { return filepath.Join(admin.RuntimeDir(), n.Role+"-"+n.Name+".sock") }

// missing reports whether a file is yet to be written.
func missing(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// sortedNames is a list of names in order, for files that a person reads.
func sortedNames(names map[string]bool) []string {
	out := make([]string, 0, len(names))
	for n := range names {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}
