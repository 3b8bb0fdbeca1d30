package spec

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Issuer is who signs JSON Web Tokens (JWT) that stand for API keys.
type Issuer struct {
	// Issuer is what tokens say in iss, to the letter.
	Issuer string `yaml:"issuer"`
	// Audience lists what tokens may say in aud; one of them is enough.
	Audience []string `yaml:"audience"`
	// JWKSURL is where the issuer's public keys are, "https://...". They are fetched every 15 minutes, and when a token
	// names a key that is not known; never while a request waits. When that fails, the keys before stay.
	JWKSURL string `yaml:"jwks_url"`
	// JWKS is the text of the key set itself, where there is no URL.
	JWKS string `yaml:"jwks"`
	// Algorithms that may sign: RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512 or EdDSA. Empty means RS256
	// and ES256.
	Algorithms []string `yaml:"algorithms"`
	// TenantClaim is the claim that names the tenant. Default sub.
	TenantClaim string `yaml:"tenant_claim" default:"sub"`
	// Tenants are the tenants by what the claim says. Empty: it says the tenant's own name.
	Tenants map[string]string `yaml:"tenants"`
	// Tenant is whom all of the issuer's tokens stand for, whatever they claim.
	Tenant string `yaml:"tenant"`
	// ClassClaim is the claim that says the highest class that the caller may ask for; never above the tenant's. A token
	// without it is for class batch. Empty: the tenant's class holds.
	ClassClaim string `yaml:"class_claim"`
	// Leeway is how far the issuer's clock may be off. Default 1m.
	Leeway Duration `yaml:"leeway" default:"1m"`
}

// Allows says that the issuer's tokens may be signed by an algorithm.
func (i *Issuer) Allows(algorithm string) bool {
	if len(i.Algorithms) == 0 {
		return algorithm == "RS256" || algorithm == "ES256"
	}
	return slices.Contains(i.Algorithms, algorithm)
}

// TokenAlgorithms are those that tokens may be signed with: of each the key that verifies is public.
func TokenAlgorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

const maxIssuers = 32

func (j *judge) issuers() {
	list := j.spec.Issuers
	if len(list) > maxIssuers {
		j.bad("$.issuers", fmt.Sprintf("there are %d issuers, more than %d", len(list), maxIssuers), "leave out those that nobody uses")
		return
	}
	for i := range list {
		j.issuer(&list[i], item("$.issuers")(i))
	}
	j.distinct("issuer", names(list, func(i *Issuer) string { return i.Issuer }), func(i int) string { return item("$.issuers")(i) + ".issuer" })
}

func (j *judge) issuer(i *Issuer, path string) {
	if i.Issuer == "" || len(i.Issuer) > 512 {
		j.bad(path+".issuer", "the issuer has no name, or one of more than 512 letters", "write what its tokens say in iss")
	}
	if len(i.Audience) == 0 {
		j.bad(path+".audience", "the issuer has no audience", "write what its tokens for this service say in aud: any token of the issuer would do otherwise, whomever it was made for")
	}
	switch {
	case i.JWKSURL == "" && i.JWKS == "":
		j.bad(path+".jwks_url", "the issuer has no keys", "write the URL of its key set, or the set itself under jwks")
	case i.JWKSURL != "" && i.JWKS != "":
		j.bad(path+".jwks", "the issuer has keys in two places", "write jwks_url or jwks")
	case i.JWKS != "" && !looksLikeKeys(i.JWKS):
		j.bad(path+".jwks", "this is not a key set", `write the JSON text, such as {"keys": [{"kty": "EC", ...}]}`)
	case i.JWKSURL != "":
		if why := badKeyURL(i.JWKSURL); why != "" {
			j.bad(path+".jwks_url", why, "write a URL such as https://login.example.com/keys")
		}
	}
	for k, a := range i.Algorithms {
		if !slices.Contains(TokenAlgorithms(), a) {
			j.bad(item(path+".algorithms")(k), fmt.Sprintf("algorithm %q is not for public keys, or not known", a), "the algorithms are: "+strings.Join(TokenAlgorithms(), ", "))
		}
	}
	if i.Tenant != "" {
		j.known("tenant", "$.tenants[*].name", []string{i.Tenant}, j.tenantList, func(int) string { return path + ".tenant" })
	}
	for _, claimed := range sortedKeys(i.Tenants) {
		j.known("tenant", "$.tenants[*].name", []string{i.Tenants[claimed]}, j.tenantList, func(int) string { return path + ".tenants" })
	}
	j.between(path+".leeway", "leeway", i.Leeway, 0, 10*time.Minute)
}

// looksLikeKeys is a first look: which keys can be used is found out where they are.
func looksLikeKeys(text string) bool {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	return len(text) <= 256<<10 && json.Unmarshal([]byte(text), &set) == nil && len(set.Keys) > 0
}

func sortedKeys(m map[string]string) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// badKeyURL says what is wrong with the URL of a key set: whoever can change what it answers can make tokens.
func badKeyURL(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return "this is not a URL"
	case u.User != nil:
		return "the URL holds a password, and everyone who reads the spec sees it"
	case u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname()):
		return ""
	case u.Scheme == "http":
		return "keys that come in plain text can be forged on the way"
	}
	return fmt.Sprintf("keys are not fetched by %q", u.Scheme)
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}
