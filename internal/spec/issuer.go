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

// TokenIssuer is an issuer of JSON Web Tokens (JWT), which clients use instead of API keys.
type TokenIssuer struct {
	// Issuer is the exact value of iss in its tokens.
	Issuer string `yaml:"issuer"`
	// Audience lists the accepted values of aud; one is enough.
	Audience []string `yaml:"audience"`
	// JWKSURL is the URL of the issuer's public keys, "https://...". They are fetched every 15 minutes, and
	// when a token names an unknown key; never while a request waits. If a fetch fails, the old keys stay.
	JWKSURL string `yaml:"jwks_url"`
	// JWKS is the text of the key set, if there is no URL.
	JWKS string `yaml:"jwks"`
	// Algorithms lists the accepted signature algorithms: RS256, RS384, RS512, PS256, PS384, PS512, ES256,
	// ES384, ES512 or EdDSA. Empty means RS256 and ES256.
	Algorithms []string `yaml:"algorithms"`
	// TenantClaim is the claim that names the tenant. Default sub.
	TenantClaim string `yaml:"tenant_claim" default:"sub"`
	// Tenants maps values of the claim to tenants. Empty: the value is the tenant's name.
	Tenants map[string]string `yaml:"tenants"`
	// Tenant is the tenant of all tokens of the issuer, regardless of their claims.
	Tenant string `yaml:"tenant"`
	// ClassClaim is the claim with the highest class that the client may request, bounded by the tenant's
	// class. A token without it gets class batch. Empty: the tenant's class.
	ClassClaim string `yaml:"class_claim"`
	// Leeway is the tolerated difference of the issuer's clock. Default 1m.
	Leeway Duration `yaml:"leeway" default:"1m"`
}

// AllowsAlgorithm reports whether the issuer's tokens may be signed by an algorithm.
func (i *TokenIssuer) AllowsAlgorithm(algorithm string) bool {
	if len(i.Algorithms) == 0 {
		return algorithm == "RS256" || algorithm == "ES256"
	}
	return slices.Contains(i.Algorithms, algorithm)
}

// TokenAlgorithms returns the supported signature algorithms: all verify with a public key.
func TokenAlgorithms() []string {
	return []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
}

const maxIssuers = 32

// issuerValidator checks token issuers.
type issuerValidator struct{ *validation }

func (v *issuerValidator) checkIssuers() {
	list := v.spec.Issuers
	if len(list) > maxIssuers {
		v.addProblem("$.issuers", fmt.Sprintf("there are %d issuers, more than %d", len(list), maxIssuers), "remove those that are not in use")
		return
	}
	for i := range list {
		v.checkIssuer(&list[i], itemPath("$.issuers")(i))
	}
	v.checkUnique("issuer", namesOf(list, func(i *TokenIssuer) string { return i.Issuer }), func(i int) string { return itemPath("$.issuers")(i) + ".issuer" })
}

func (v *issuerValidator) checkIssuer(i *TokenIssuer, path string) {
	if i.Issuer == "" || len(i.Issuer) > 512 {
		v.addProblem(path+".issuer", "the issuer has no name, or one of more than 512 letters", "write the value of iss in its tokens")
	}
	if len(i.Audience) == 0 {
		v.addProblem(path+".audience", "the issuer has no audience", "write the value of aud in its tokens for this service: without it, tokens for other services would be accepted")
	}
	switch {
	case i.JWKSURL == "" && i.JWKS == "":
		v.addProblem(path+".jwks_url", "the issuer has no keys", "write the URL of its key set, or the set itself under jwks")
	case i.JWKSURL != "" && i.JWKS != "":
		v.addProblem(path+".jwks", "the issuer has keys in two places", "write jwks_url or jwks")
	case i.JWKS != "" && !looksLikeKeySet(i.JWKS):
		v.addProblem(path+".jwks", "this is not a key set", `write the JSON text, such as {"keys": [{"kty": "EC", ...}]}`)
	case i.JWKSURL != "":
		if why := keyURLProblem(i.JWKSURL); why != "" {
			v.addProblem(path+".jwks_url", why, "write a URL such as https://login.example.com/keys")
		}
	}
	for k, a := range i.Algorithms {
		if !slices.Contains(TokenAlgorithms(), a) {
			v.addProblem(itemPath(path+".algorithms")(k), fmt.Sprintf("unsupported algorithm %q", a), "the algorithms are: "+strings.Join(TokenAlgorithms(), ", "))
		}
	}
	if i.Tenant != "" {
		v.checkReferences("tenant", "$.tenants[*].name", []string{i.Tenant}, v.tenantNames, func(int) string { return path + ".tenant" })
	}
	for _, claimed := range sortedKeys(i.Tenants) {
		v.checkReferences("tenant", "$.tenants[*].name", []string{i.Tenants[claimed]}, v.tenantNames, func(int) string { return path + ".tenants" })
	}
	v.checkDuration(path+".leeway", "leeway", i.Leeway, 0, 10*time.Minute)
}

// looksLikeKeySet is a first check; which keys are usable is determined by their user.
func looksLikeKeySet(text string) bool {
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

// keyURLProblem returns what is wrong with the URL of a key set: an attacker who can change its response can
// forge tokens.
func keyURLProblem(text string) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "":
		return "this is not a URL"
	case u.User != nil:
		return "the URL contains a password: everyone who reads the spec can read it"
	case u.Scheme == "https" || u.Scheme == "http" && isLoopbackHost(u.Hostname()):
		return ""
	case u.Scheme == "http":
		return "keys fetched over http can be forged in transit"
	}
	return fmt.Sprintf("unsupported URL scheme %q", u.Scheme)
}

func isLoopbackHost(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}
