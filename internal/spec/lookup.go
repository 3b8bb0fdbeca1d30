package spec

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// specIndex answers lookups without a scan or an allocation. It is built once and never changed.
type specIndex struct {
	tenants  map[string]*Tenant
	services map[string]*Service
	regions  map[string]*Region
	models   map[string]*Model
	aliases  map[string]*Alias
	keys     map[uint64][]hashedKey
}

type hashedKey struct {
	hash                [sha256.Size]byte
	tenant              *Tenant
	notBefore, notAfter time.Time // its validity; zero: no bound
}

var emptyIndex specIndex

func newSpecIndex(s *Spec) *specIndex {
	x := &specIndex{
		tenants: make(map[string]*Tenant, len(s.Tenants)), services: make(map[string]*Service, len(s.Services)),
		regions: make(map[string]*Region, len(s.Regions)), models: make(map[string]*Model, len(s.Models)),
		aliases: make(map[string]*Alias, len(s.Aliases)), keys: map[uint64][]hashedKey{},
	}
	for i := range s.Services {
		x.services[s.Services[i].Name] = &s.Services[i]
	}
	for i := range s.Regions {
		x.regions[s.Regions[i].Name] = &s.Regions[i]
	}
	for i := range s.Models {
		x.models[s.Models[i].Name] = &s.Models[i]
	}
	for i := range s.Aliases {
		x.aliases[s.Aliases[i].Name] = &s.Aliases[i]
	}
	for i := range s.Tenants {
		t := &s.Tenants[i]
		x.tenants[t.Name] = t
		for _, k := range t.Keys {
			if sum, ok := parseKeyHash(k); ok {
				at := binary.BigEndian.Uint64(sum[:8])
				x.keys[at] = append(x.keys[at], hashedKey{hash: sum, tenant: t})
			}
		}
		for k := range t.TimedKeys {
			if sum, ok := parseKeyHash(t.TimedKeys[k].Hash); ok {
				at := binary.BigEndian.Uint64(sum[:8])
				x.keys[at] = append(x.keys[at], hashedKey{sum, t, t.TimedKeys[k].NotBefore.AsTime(), t.TimedKeys[k].NotAfter.AsTime()})
			}
		}
	}
	return x
}

// lookupIndex returns the index. For a Spec not made by Decode it builds one.
func (s *Spec) lookupIndex() *specIndex {
	if s.index != nil {
		return s.index
	}
	if len(s.Models)+len(s.Aliases)+len(s.Tenants)+len(s.Services)+len(s.Regions) == 0 {
		return &emptyIndex // an empty spec is common in a standalone zone, and used on every request
	}
	return newSpecIndex(s)
}

// FindTenant returns the tenant of that name, or nil.
func (s *Spec) FindTenant(name string) *Tenant { return s.lookupIndex().tenants[name] }

// PrefixOwner returns the owner of a tenant's cached prompts: its own name or its prefix group. No tenant's
// name begins like a group here.
func (s *Spec) PrefixOwner(tenant string) string {
	if t := s.FindTenant(tenant); t != nil && t.PrefixGroup != "" {
		return "\x00" + t.PrefixGroup
	}
	return tenant
}

// FindRegion returns the region of that name, or nil.
func (s *Spec) FindRegion(name string) *Region { return s.lookupIndex().regions[name] }

// FindModel returns the model of that name, or nil. An alias is not a model: package modelroute resolves it.
func (s *Spec) FindModel(name string) *Model { return s.lookupIndex().models[name] }

// FindAlias returns the alias of that name, or nil.
func (s *Spec) FindAlias(name string) *Alias { return s.lookupIndex().aliases[name] }

// FindService returns the service of that DNS name, or nil. Case and a missing final dot do not matter.
func (s *Spec) FindService(fqdn string) *Service {
	var buf [maxDNSName + 2]byte
	if len(fqdn) > maxDNSName {
		return nil
	}
	name := append(buf[:0], fqdn...)
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			name[i] = c + 'a' - 'A'
		}
	}
	if len(name) > 0 && name[len(name)-1] != '.' {
		name = append(name, '.')
	}
	return s.lookupIndex().services[string(name)]
}

// PermitsRegion reports whether the tenant's residency and regions allow the region to serve its requests.
func (s *Spec) PermitsRegion(t *Tenant, r *Region) bool {
	return ResidencyPermits(t.Regions, t.Residency, r.Name, r.Residency)
}

// ResidencyPermits reports whether a region with the given name and jurisdictions is allowed for a tenant: it
// is one of its regions and in one of its jurisdictions. An empty list is no restriction.
func ResidencyPermits(regions, residency []string, name string, jurisdictions []string) bool {
	if len(regions) > 0 && !slices.Contains(regions, name) {
		return false
	}
	if len(residency) == 0 {
		return true
	}
	for _, label := range residency {
		if slices.Contains(jurisdictions, label) {
			return true
		}
	}
	return false
}

// MayUseModel reports whether the tenant may use a model, requested by that name or through an alias.
func (t *Tenant) MayUseModel(asked, model string) bool { return isListed(t.Models, asked, model) }

// ServesModel reports whether the service serves a model, requested by that name or through an alias.
func (s *Service) ServesModel(asked, model string) bool { return isListed(s.Models, asked, model) }

func isListed(names []string, asked, model string) bool {
	return len(names) == 0 || slices.Contains(names, asked) || slices.Contains(names, model)
}

// HashKey returns an API key in the form used in a spec, "sha256:" and 64 hex digits. Keys are long and random,
// so one round of a fast hash is enough.
func HashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return keyPrefix + hex.EncodeToString(sum[:])
}

const keyPrefix = "sha256:"

// maxAPIKeyBytes bounds the length of keys that are hashed, in bytes.
const maxAPIKeyBytes = 512

// ClockSkew is the tolerated difference between this node's clock and those that set the times of keys and
// tokens.
const ClockSkew = time.Minute

// AuthenticateKey returns the tenant of an API key at now. Hashes are compared in constant time.
func (s *Spec) AuthenticateKey(key string, now time.Time) (*Tenant, bool) {
	if key == "" || len(key) > maxAPIKeyBytes {
		return nil, false
	}
	var buf [maxAPIKeyBytes]byte
	sum := sha256.Sum256(append(buf[:0], key...))
	var found *Tenant
	for _, k := range s.lookupIndex().keys[binary.BigEndian.Uint64(sum[:8])] {
		if subtle.ConstantTimeCompare(k.hash[:], sum[:]) == 1 && k.isValidAt(now) {
			found = k.tenant
		}
	}
	return found, found != nil
}

// isValidAt reports whether a key is valid at now +- ClockSkew.
func (k *hashedKey) isValidAt(now time.Time) bool {
	return (k.notBefore.IsZero() || !now.Before(k.notBefore.Add(-ClockSkew))) && (k.notAfter.IsZero() || !now.After(k.notAfter.Add(ClockSkew)))
}

// IsHashedKey reports whether s is a key hash as made by HashKey.
func IsHashedKey(s string) bool {
	_, ok := parseKeyHash(s)
	return ok
}

func parseKeyHash(s string) (sum [sha256.Size]byte, ok bool) {
	digits, ok := strings.CutPrefix(s, keyPrefix)
	if !ok || len(digits) != 2*len(sum) || strings.ContainsAny(digits, "ABCDEF") {
		return sum, false
	}
	n, err := hex.Decode(sum[:], []byte(digits))
	return sum, err == nil && n == len(sum)
}
