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

// Zone is the DNS zone of every fleet, under the top-level domain that RFC 2606 reserves for tests, and Service is
// the name in it that clients use.
const (
	DNSZone     = "spillway.test."
	ServiceName = "chat." + DNSZone
)

// certTTL is the lifetime of a fleet's certificates: longer than a demo runs, shorter than secrets should live.
const certTTL = 30 * 24 * time.Hour

// Files is a layout written to a directory: certificates, keys, spec and one config file for each node.
type Files struct {
	Dir    string
	Layout Layout
	Nodes  []Node // in starting order
	links  []Link
}

// Tenants of every fleet, each with its own key; the third only if there is a region in the EU.
var tenantNames = []string{"acme", "nightly", "berlin"}

// WriteFiles writes a fleet to dir. A directory that already holds one keeps its certificates, keys and state: only
// missing files are written, and a different layout is refused.
func WriteFiles(dir string, l Layout) (*Files, error) {
	if err := l.checkLayout(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolving the fleet's directory: %w", err)
	}
	p := newFiles(dir, l)
	if err := p.checkSameLayout(); err != nil {
		return nil, err
	}
	for _, step := range []func() error{p.writeLayout, p.writeKeys, p.writeCerts, p.writeSpec, p.writeNodeConfigs} {
		if err := step(); err != nil {
			return nil, fmt.Errorf("writing the fleet to %s: %w", dir, err)
		}
	}
	return p, nil
}

func newFiles(dir string, l Layout) *Files {
	return &Files{Dir: dir, Layout: l, Nodes: l.BuildNodes(), links: l.BuildLinks()}
}

// ReadFiles opens the fleet that a directory holds and writes nothing.
func ReadFiles(dir string) (*Files, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolving the fleet's directory: %w", err)
	}
	l, found, err := ReadLayout(dir)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("%s holds no fleet: it has no layout.json", dir)
	}
	if err := l.checkLayout(); err != nil {
		return nil, fmt.Errorf("%s: %w", (&Files{Dir: dir}).layoutPath(), err)
	}
	return newFiles(dir, l), nil
}

// FindNode returns the node of an ID.
func (p *Files) FindNode(id string) (Node, bool) {
	for _, n := range p.Nodes {
		if n.ID() == id {
			return n, true
		}
	}
	return Node{}, false
}

// ConfigPath is the path of a node's config file.
func (p *Files) ConfigPath(n Node) string { return filepath.Join(p.Dir, n.ID()+".yaml") }

// SpecPath is the path of the fleet's first spec.
func (p *Files) SpecPath() string { return filepath.Join(p.Dir, "spec.yaml") }

// ReadTenantKey reads a tenant's API key, which is stored only in its file.
func (p *Files) ReadTenantKey(tenant string) (string, error) {
	b, err := os.ReadFile(p.keyPath(tenant))
	return string(b), err
}

// TenantNames lists the tenants of this fleet.
func (p *Files) TenantNames() []string {
	if p.hasResidency("eu") {
		return tenantNames
	}
	return tenantNames[:2]
}

// NodesByRole lists the nodes of one role, in order.
func (p *Files) NodesByRole(role string) []Node {
	var out []Node
	for _, n := range p.Nodes {
		if n.Role == role {
			out = append(out, n)
		}
	}
	return out
}

// DNSAddrs lists the addresses of the global nodes' name servers.
func (p *Files) DNSAddrs() []netip.AddrPort {
	var out []netip.AddrPort
	for _, n := range p.NodesByRole("global") {
		out = append(out, n.Addr["dns"])
	}
	return out
}

// ClientAddr is a loopback source address that is located at the i-th site. It needs all of 127.0.0.0/8.
func (p *Files) ClientAddr(i int) (netip.Addr, bool) {
	if p.Layout.OneAddress {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4([4]byte{127, byte(sourceNet + i), 0, 1}), true
}

// sourceNet is the second byte of the first site's source addresses; see places.csv.
const sourceNet = 100

func (p *Files) hasResidency(residency string) bool {
	for _, s := range AllSites()[:p.Layout.Regions] {
		if s.Residency == residency {
			return true
		}
	}
	return false
}

func (p *Files) keyPath(tenant string) string {
	return filepath.Join(p.Dir, "keys", tenant+".key")
}

// writeKeys creates an API key for each tenant: no two fleets share a secret.
func (p *Files) writeKeys() error {
	if err := os.MkdirAll(filepath.Join(p.Dir, "keys"), 0o700); err != nil {
		return err
	}
	for _, t := range p.TenantNames() {
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

// writeCerts makes a development CA and one certificate for each node that uses mutual TLS, and one for the operator.
func (p *Files) writeCerts() error {
	ca, err := identity.NewDevCA(p.certDir(), "spillway.test")
	if err != nil {
		return err
	}
	ids := []identity.ID{{TrustDomain: "spillway.test", Role: identity.RoleOperator, Name: "operator"}}
	for _, n := range p.Nodes {
		if id, ok := n.certIdentity(); ok {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		if _, err := os.Stat(id.FilesIn(p.certDir()).Cert); err == nil {
			continue
		}
		if _, err := ca.IssueCert(id, p.certDir(), certTTL); err != nil {
			return err
		}
	}
	return nil
}

func (p *Files) certDir() string { return filepath.Join(p.Dir, "certs") }

// certIdentity is the identity in the node's certificate; workers have none.
func (n Node) certIdentity() (identity.ID, bool) {
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

// CertFiles returns the identity of a node and the files of its certificate; false for workers, which have none.
func (p *Files) CertFiles(n Node) (identity.ID, identity.CertFiles, bool) {
	id, ok := n.certIdentity()
	return id, id.FilesIn(p.certDir()), ok
}

// CertDir is the directory of the fleet's authority and certificates.
func (p *Files) CertDir() string { return p.certDir() }

// StateDir is the directory of a node's state.
func (p *Files) StateDir(n Node) string { return filepath.Join(p.Dir, "state", n.ID()) }

// AdminSocket is where a node's admin interface listens.
func (n Node) AdminSocket() string {
	return filepath.Join(admin.RuntimeDir(), n.Role+"-"+n.Name+".sock")
}

// isMissing reports whether a file does not exist yet.
func isMissing(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}

// sortedNames is a sorted list of names, for files that people read.
func sortedNames(names map[string]bool) []string {
	out := make([]string, 0, len(names))
	for n := range names {
		out = append(out, n)
	}
	sort.Strings(out)
	return out
}
