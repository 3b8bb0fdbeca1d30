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

// index answers lookups without a scan and without allocating. It is built once and never changed.
type index struct {
	tenants  map[string]*Tenant
	services map[string]*Service
	regions  map[string]*Region
	models   map[string]*Model
	aliases  map[string]*Alias
	keys     map[uint64][]hashedKey
}

type hashedKey struct {
	sum      [sha256.Size]byte
	tenant   *Tenant
	from, to time.Time // when it is taken; zero: no bound
}

var nothing index

func newIndex(s *Spec) *index {
	x := &index{
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
				x.keys[at] = append(x.keys[at], hashedKey{sum: sum, tenant: t})
			}
		}
		for k := range t.TimedKeys {
			if sum, ok := parseKeyHash(t.TimedKeys[k].Hash); ok {
				at := binary.BigEndian.Uint64(sum[:8])
				x.keys[at] = append(x.keys[at], hashedKey{sum, t, t.TimedKeys[k].NotBefore.At(), t.TimedKeys[k].NotAfter.At()})
			}
		}
	}
	return x
}

// lookups returns the index, built anew on a Spec that Decode did not make.
func (s *Spec) lookups() *index {
	if s.index != nil {
		return s.index
	}
	if len(s.Models)+len(s.Aliases)+len(s.Tenants)+len(s.Services)+len(s.Regions) == 0 {
		return &nothing // no spec at all is common where a zone stands alone, and asked on every request
	}
	return newIndex(s)
}

// Tenant returns the tenant of that name, or nil.
func (s *Spec) Tenant(name string) *Tenant { return s.lookups().tenants[name] }

// PrefixOwner is under whose name a tenant's prompts are remembered and named: its own, or its prefix group's. No tenant's
// name begins as a group's does here.
func (s *Spec) PrefixOwner(tenant string) string {
	if t := s.Tenant(tenant); t != nil && t.PrefixGroup != "" {
		return "\x00" + t.PrefixGroup
	}
	return tenant
}

// Region returns the region of that name, or nil.
func (s *Spec) Region(name string) *Region { return s.lookups().regions[name] }

// ModelNamed returns the model of that name, or nil. An alias is not a model: package route resolves it.
func (s *Spec) ModelNamed(name string) *Model { return s.lookups().models[name] }

// AliasNamed returns the alias of that name, or nil.
func (s *Spec) AliasNamed(name string) *Alias { return s.lookups().aliases[name] }

// Service returns the service of that DNS name, or nil. Case and a missing last dot do not matter.
func (s *Spec) Service(fqdn string) *Service {
	var buf [maxName + 2]byte
	if len(fqdn) > maxName {
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
	return s.lookups().services[string(name)]
}

// Permits reports whether the tenant's residency and regions let the region serve its requests.
func (s *Spec) Permits(t *Tenant, r *Region) bool {
	return Fenced(t.Regions, t.Residency, r.Name, r.Residency)
}

// Fenced reports whether a region, of which the name and the jurisdictions are given, is inside a tenant's fences: one of
// its regions, and of one of its jurisdictions. An empty list of either is no fence.
func Fenced(regions, residency []string, name string, jurisdictions []string) bool {
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

// MayUse reports whether the tenant may use a model, asked for by that name or through an alias.
func (t *Tenant) MayUse(asked, model string) bool { return listed(t.Models, asked, model) }

// Serves reports whether the service serves a model, asked for by that name or through an alias.
func (s *Service) Serves(asked, model string) bool { return listed(s.Models, asked, model) }

func listed(names []string, asked, model string) bool {
	return len(names) == 0 || slices.Contains(names, asked) || slices.Contains(names, model)
}

// HashKey returns an API key as a spec holds it, "sha256:" and 64 hex digits. Keys are long and random, so that one
// round of a fast hash is enough.
func HashKey(key string) string {
	sum := sha256.Sum256([]byte(key))
	return keyPrefix + hex.EncodeToString(sum[:])
}

const keyPrefix = "sha256:"

// maxAPIKey bounds the keys that are hashed at all, in bytes.
const maxAPIKey = 512

// ClockSkew is how far apart this node's clock and those that set the times of keys and tokens may be.
const ClockSkew = time.Minute

// Authenticate returns the tenant that an API key belongs to at now. Hashes are compared in constant time.
func (s *Spec) Authenticate(key string, now time.Time) (*Tenant, bool) {
	if key == "" || len(key) > maxAPIKey {
		return nil, false
	}
	var buf [maxAPIKey]byte
	sum := sha256.Sum256(append(buf[:0], key...))
	var found *Tenant
	for _, k := range s.lookups().keys[binary.BigEndian.Uint64(sum[:8])] {
		if subtle.ConstantTimeCompare(k.sum[:], sum[:]) == 1 && k.holds(now) {
			found = k.tenant
		}
	}
	return found, found != nil
}

// holds reports whether a key is taken at now, give or take ClockSkew.
func (k *hashedKey) holds(now time.Time) bool {
	return (k.from.IsZero() || !now.Before(k.from.Add(-ClockSkew))) && (k.to.IsZero() || !now.After(k.to.Add(ClockSkew)))
}

// IsHashedKey reports whether s is the hash of a key as HashKey makes it.
func IsHashedKey(s string) bool {
	_, ok := parseKeyHash(s)
	return ok
}

func parseKeyHash(s string) (sum [sha256.Size]byte, ok bool) {
	digits, ok := strings.CutPrefix(s, keyPrefix)
	if !ok || len(digits) != 2*len(sum) || digits != strings.ToLower(digits) {
		return sum, false
	}
	n, err := hex.Decode(sum[:], []byte(digits))
	return sum, err == nil && n == len(sum)
}
