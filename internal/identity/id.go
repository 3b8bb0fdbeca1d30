// Package identity authenticates nodes to each other: mutual TLS 1.3 with one SPIFFE URI per certificate, certificates
// that are read again when their files change, and a small certificate authority for development.
//
// A peer is accepted if its certificate chains to the trusted authority, contains exactly one identity of the same
// trust domain, and satisfies the caller's rule. A peer's identity comes from its certificate alone. Host names are not
// checked, because nodes move between hosts and keep their identities.
//
// What a role may do is the rule of each listener. The package issues no certificates for production and logs no key
// material, and an invalid new file does not replace a valid certificate.
package identity

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Role is the kind of node or person that an identity belongs to.
type Role string

// The roles, as they appear in a SPIFFE path.
const (
	RoleGlobal   Role = "global"   // a node of the global tier
	RoleGateway  Role = "gateway"  // an instance of a region's gateway tier
	RoleLocal    Role = "local"    // an instance of a zone's local tier
	RoleOperator Role = "operator" // a person or a program that administers
)

const (
	uriScheme           = "spiffe://"
	maxURIBytes         = 2048 // SPIFFE-ID 2.3
	maxTrustDomainBytes = 255  // SPIFFE-ID 2.3
	maxSegmentBytes     = 128
)

// ErrInvalidID is wrapped by every error about an identity's text.
var ErrInvalidID = errors.New("not a spillway identity")

// ID is one identity. Region is set for gateways and locals, Zone for locals only.
type ID struct {
	TrustDomain string
	Role        Role
	Region      string
	Zone        string
	Name        string
}

// FileName returns the base name of id's certificate and key files: the region and the zone, if set, and the name,
// joined by hyphens ("g1", "fra-gw1", "fra-a-l1"). Gateways with the same name in two regions have different files.
func (id ID) FileName() string {
	parts := make([]string, 0, 3)
	for _, p := range []string{id.Region, id.Zone, id.Name} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "-")
}

// FilesIn returns the paths of the files that a development CA in dir issues for id.
func (id ID) FilesIn(dir string) CertFiles {
	base := filepath.Join(dir, id.FileName())
	return CertFiles{Cert: base + ".pem", Key: base + ".key", CA: filepath.Join(dir, "ca.pem")}
}

// ParseID parses a SPIFFE URI of one of the four forms that Validate accepts. It is strict: no escapes, no query, no
// port, no empty or dotted segment (SPIFFE-ID 2.1 and 2.2), and no unknown role.
func ParseID(uri string) (ID, error) {
	if len(uri) > maxURIBytes {
		return ID{}, fmt.Errorf("%w: longer than %d bytes", ErrInvalidID, maxURIBytes)
	}
	rest, ok := strings.CutPrefix(uri, uriScheme)
	if !ok {
		return ID{}, fmt.Errorf("%w: %q does not start with %s", ErrInvalidID, uri, uriScheme)
	}
	domain, path, _ := strings.Cut(rest, "/")
	id, ok := idFromPath(strings.Split(path, "/"))
	if !ok {
		return ID{}, fmt.Errorf("%w: %q is none of global/NAME, region/REGION/gateway/NAME, region/REGION/zone/ZONE/local/NAME, operator/NAME", ErrInvalidID, uri)
	}
	id.TrustDomain = domain
	if err := id.Validate(); err != nil {
		return ID{}, err
	}
	return id, nil
}

// idFromPath assigns path segments to the fields of an ID. It does not check the names in them.
func idFromPath(p []string) (ID, bool) {
	switch {
	case len(p) == 2 && p[0] == "global":
		return ID{Role: RoleGlobal, Name: p[1]}, true
	case len(p) == 2 && p[0] == "operator":
		return ID{Role: RoleOperator, Name: p[1]}, true
	case len(p) == 4 && p[0] == "region" && p[2] == "gateway":
		return ID{Role: RoleGateway, Region: p[1], Name: p[3]}, true
	case len(p) == 6 && p[0] == "region" && p[2] == "zone" && p[4] == "local":
		return ID{Role: RoleLocal, Region: p[1], Zone: p[3], Name: p[5]}, true
	}
	return ID{}, false
}

// Validate returns why an ID is invalid; nil if its String is a valid SPIFFE URI.
func (id ID) Validate() error {
	if len(id.TrustDomain) > maxTrustDomainBytes || !hasOnlyIDChars(id.TrustDomain, false) {
		return fmt.Errorf("%w: trust domain %q must be 1 to %d of a-z 0-9 . - _", ErrInvalidID, id.TrustDomain, maxTrustDomainBytes)
	}
	region, zone := id.Role == RoleGateway || id.Role == RoleLocal, id.Role == RoleLocal
	switch {
	case id.Role != RoleGlobal && id.Role != RoleGateway && id.Role != RoleLocal && id.Role != RoleOperator:
		return fmt.Errorf("%w: role %q is not global, gateway, local or operator", ErrInvalidID, id.Role)
	case !isSegment(id.Name):
		return fmt.Errorf("%w: name %q must be 1 to %d of a-z A-Z 0-9 . - _", ErrInvalidID, id.Name, maxSegmentBytes)
	case region != isSegment(id.Region) || !region && id.Region != "":
		return fmt.Errorf("%w: region %q is not allowed, or missing, for role %s", ErrInvalidID, id.Region, id.Role)
	case zone != isSegment(id.Zone) || !zone && id.Zone != "":
		return fmt.Errorf("%w: zone %q is not allowed, or missing, for role %s", ErrInvalidID, id.Zone, id.Role)
	}
	return nil
}

// String returns the SPIFFE URI of an ID that Validate accepts.
func (id ID) String() string {
	base := uriScheme + id.TrustDomain
	switch id.Role {
	case RoleGateway:
		return base + "/region/" + id.Region + "/gateway/" + id.Name
	case RoleLocal:
		return base + "/region/" + id.Region + "/zone/" + id.Zone + "/local/" + id.Name
	}
	return base + "/" + string(id.Role) + "/" + id.Name
}

func isSegment(s string) bool {
	return len(s) <= maxSegmentBytes && s != "." && s != ".." && hasOnlyIDChars(s, true)
}

// hasOnlyIDChars reports whether s is one or more of the characters that SPIFFE allows; a trust domain has no capital
// letters.
func hasOnlyIDChars(s string, capitals bool) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '-', c == '_':
		case c >= 'A' && c <= 'Z' && capitals:
		default:
			return false
		}
	}
	return s != ""
}
