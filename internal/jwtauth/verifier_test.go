package jwtauth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spillway-lb/spillway/internal/spec"
	"go.uber.org/goleak"

	"github.com/spillway-lb/spillway/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testSigner is an issuer's key.
type testSigner struct {
	id, algorithm string
	key           crypto.Signer
}

func newSigner(t testing.TB, id string) testSigner {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return testSigner{id, "ES256", key}
}

func encodeKeySet(signers ...testSigner) []byte {
	var set jose.JSONWebKeySet
	for _, s := range signers {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id, Algorithm: s.algorithm, Use: "sig"})
	}
	b, _ := json.Marshal(set)
	return b
}

func (s testSigner) signClaims(t testing.TB, claims map[string]any) string {
	t.Helper()
	return signCompact(t, jose.SigningKey{Algorithm: jose.SignatureAlgorithm(s.algorithm), Key: s.key}, s.id, claims)
}

func signCompact(t testing.TB, key jose.SigningKey, id string, claims map[string]any) string {
	t.Helper()
	sig, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithHeader("kid", id))
	if err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	out, err := sig.Sign(body)
	if err != nil {
		t.Fatal(err)
	}
	text, err := out.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func testNow() time.Time { return time.Unix(1_800_000_000, 0) }

func validClaims() map[string]any {
	return map[string]any{"iss": "https://login", "aud": []string{"spillway"}, "sub": "acme", "exp": testNow().Add(time.Hour).Unix()}
}

func claimsWith(key string, value any) map[string]any {
	c := validClaims()
	if c[key] = value; value == nil {
		delete(c, key)
	}
	return c
}

func testIssuer(keys []byte) spec.TokenIssuer {
	return spec.TokenIssuer{
		Issuer: "https://login", Audience: []string{"spillway", "other"}, JWKS: string(keys), Algorithms: []string{"ES256", "RS256"},
		TenantClaim: "sub", Leeway: spec.Duration(time.Minute),
	}
}

func newTestVerifier(issuers ...spec.TokenIssuer) *Verifier {
	v := New(Config{})
	v.SetIssuers(issuers)
	return v
}

func TestVerifyTokenAcceptsAndRefuses(t *testing.T) {
	ours, theirs := newSigner(t, "k1"), newSigner(t, "k1")
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public := testSigner{"r1", "RS256", rsaKey}
	v := newTestVerifier(testIssuer(encodeKeySet(ours, public)))
	der, err := x509.MarshalPKIXPublicKey(rsaKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	asSecret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	b64 := base64.RawURLEncoding.EncodeToString
	body, _ := json.Marshal(validClaims())
	unsigned := b64([]byte(`{"alg":"none","kid":"k1"}`)) + "." + b64(body) + "."
	whole := ours.signClaims(t, validClaims())
	parts := strings.Split(whole, ".")
	other, _ := json.Marshal(claimsWith("sub", "bolt"))
	for name, c := range map[string]struct {
		token string
		want  error
	}{
		"good":                             {whole, nil},
		"RSA":                              {public.signClaims(t, validClaims()), nil},
		"no algorithm":                     {unsigned, ErrAlgorithmNotAllowed},
		"no algorithm, capitals":           {b64([]byte(`{"alg":"NONE"}`)) + "." + b64(body) + ".", ErrAlgorithmNotAllowed},
		"the public key as a secret":       {signCompact(t, jose.SigningKey{Algorithm: jose.HS256, Key: asSecret}, "r1", validClaims()), ErrAlgorithmNotAllowed},
		"an algorithm that is not allowed": {signCompact(t, jose.SigningKey{Algorithm: jose.PS256, Key: rsaKey}, "r1", validClaims()), ErrAlgorithmNotAllowed},
		"another's key":                    {theirs.signClaims(t, validClaims()), ErrInvalidSignature},
		"one key's id, another's kind":     {signCompact(t, jose.SigningKey{Algorithm: jose.RS256, Key: rsaKey}, "k1", validClaims()), ErrUnknownKey},
		"a key that is not known":          {testSigner{"k9", "ES256", ours.key}.signClaims(t, validClaims()), ErrUnknownKey},
		"changed claims":                   {parts[0] + "." + b64(other) + "." + parts[2], ErrInvalidSignature},
		"no signature":                     {parts[0] + "." + parts[1] + ".", ErrInvalidSignature},
		"expired":                          {ours.signClaims(t, claimsWith("exp", testNow().Add(-2*time.Minute).Unix())), ErrExpired},
		"just expired, by another clock":   {ours.signClaims(t, claimsWith("exp", testNow().Add(-50*time.Second).Unix())), nil},
		"from the future":                  {ours.signClaims(t, claimsWith("nbf", testNow().Add(2*time.Minute).Unix())), ErrNotYetValid},
		"from a clock that is ahead":       {ours.signClaims(t, claimsWith("nbf", testNow().Add(50*time.Second).Unix())), nil},
		"without an end":                   {ours.signClaims(t, claimsWith("exp", nil)), ErrNoExpiry},
		"an end that is no number":         {ours.signClaims(t, claimsWith("exp", "tomorrow")), ErrMalformed},
		"another audience":                 {ours.signClaims(t, claimsWith("aud", "elsewhere")), ErrWrongAudience},
		"no audience":                      {ours.signClaims(t, claimsWith("aud", nil)), ErrWrongAudience},
		"another issuer":                   {ours.signClaims(t, claimsWith("iss", "https://evil")), ErrUnknownIssuer},
		"no issuer":                        {ours.signClaims(t, claimsWith("iss", nil)), ErrUnknownIssuer},
		"no tenant":                        {ours.signClaims(t, claimsWith("sub", nil)), ErrUnknownTenant},
		"a tenant that is no text":         {ours.signClaims(t, claimsWith("sub", []int{1})), ErrMalformed},
		"huge":                             {ours.signClaims(t, claimsWith("pad", strings.Repeat("x", MaxTokenBytes))), ErrMalformed},
		"no token":                         {"a.b.c", ErrMalformed},
		"empty":                            {"", ErrMalformed},
		"deep":                             {b64([]byte(`{"alg":"ES256"}`)) + "." + b64([]byte(strings.Repeat("[", 3000))) + ".AA", ErrMalformed},
	} {
		for range 2 { // the second result may come from the cache
			got, err := v.VerifyToken(c.token, testNow())
			if !errors.Is(err, c.want) || c.want == nil && (err != nil || got.Tenant != "acme") {
				t.Errorf("%s: %+v, %v, want %v", name, got, err, c.want)
			}
		}
	}
}

func TestTenantAndClassFromClaims(t *testing.T) {
	k := newSigner(t, "k1")
	for name, c := range map[string]struct {
		change func(*spec.TokenIssuer)
		claims map[string]any
		want   TokenCaller
		err    error
	}{
		"one for all":           {func(i *spec.TokenIssuer) { i.Tenant = "bolt" }, validClaims(), TokenCaller{Tenant: "bolt"}, nil},
		"by a table":            {func(i *spec.TokenIssuer) { i.Tenants = map[string]string{"acme": "bolt"} }, validClaims(), TokenCaller{Tenant: "bolt"}, nil},
		"not in the table":      {func(i *spec.TokenIssuer) { i.Tenants = map[string]string{"x": "bolt"} }, validClaims(), TokenCaller{}, ErrUnknownTenant},
		"by another claim":      {func(i *spec.TokenIssuer) { i.TenantClaim = "org" }, claimsWith("org", "bolt"), TokenCaller{Tenant: "bolt"}, nil},
		"with a class":          {func(i *spec.TokenIssuer) { i.ClassClaim = "tier" }, claimsWith("tier", "standard"), TokenCaller{Tenant: "acme", Class: spec.Standard}, nil},
		"with an odd class":     {func(i *spec.TokenIssuer) { i.ClassClaim = "tier" }, claimsWith("tier", "gold"), TokenCaller{Tenant: "acme", Class: spec.Batch}, nil},
		"without its class":     {func(i *spec.TokenIssuer) { i.ClassClaim = "tier" }, validClaims(), TokenCaller{Tenant: "acme", Class: spec.Batch}, nil},
		"class that is no text": {func(i *spec.TokenIssuer) { i.ClassClaim = "tier" }, claimsWith("tier", 3), TokenCaller{Tenant: "acme", Class: spec.Batch}, nil},
	} {
		i := testIssuer(encodeKeySet(k))
		c.change(&i)
		if got, err := newTestVerifier(i).VerifyToken(k.signClaims(t, c.claims), testNow()); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestCachedTokensExpire: a verified token is not verified again, and is not accepted after its expiry.
func TestCachedTokensExpire(t *testing.T) {
	k := newSigner(t, "k1")
	counts := map[string]int{}
	v := New(Config{CountOutcome: func(o string) { counts[o]++ }})
	v.SetIssuers([]spec.TokenIssuer{testIssuer(encodeKeySet(k))})
	token := k.signClaims(t, validClaims())
	for range 3 {
		if _, err := v.VerifyToken(token, testNow()); err != nil {
			t.Fatal(err)
		}
	}
	if counts["verified"] != 1 || counts["cached"] != 2 {
		t.Errorf("%v", counts)
	}
	if _, err := v.VerifyToken(token, testNow().Add(time.Hour+2*time.Minute)); !errors.Is(err, ErrExpired) {
		t.Errorf("after its end it is judged %v", err)
	}
	for n := range 3 * maxCachedTokens { // a client cannot make many variants of one valid token, but a tenant has many tokens
		v.cache.putToken(v.cache.hashToken(fmt.Sprint(n)), verifiedToken{}, v.cache.currentGeneration())
	}
	if n := len(v.cache.recent) + len(v.cache.older); n > maxCachedTokens {
		t.Errorf("%d tokens are remembered", n)
	}
	v.SetIssuers(nil)
	if _, err := v.VerifyToken(token, testNow()); !errors.Is(err, ErrUnknownIssuer) {
		t.Errorf("after its issuer left the spec it is judged %v", err)
	}
}

// keyServer serves a key set that the test changes.
type keyServer struct {
	*httptest.Server
	body       atomic.Pointer[[]byte]
	status     atomic.Int64
	fetchCount atomic.Int64
}

func startKeyServer(t *testing.T, body []byte) *keyServer {
	s := &keyServer{}
	s.body.Store(&body)
	s.status.Store(http.StatusOK)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fetchCount.Add(1)
		if s.status.Load() == http.StatusFound {
			w.Header().Set("Location", "http://127.0.0.1:1/")
		}
		w.WriteHeader(int(s.status.Load()))
		_, _ = w.Write(*s.body.Load())
	}))
	t.Cleanup(s.Close)
	return s
}

// TestKeysAreFetchedInBackgroundOnly: never by a request, again for an unknown key but rate-limited, and the
// old keys stay when a fetch fails in any way.
func TestKeysAreFetchedInBackgroundOnly(t *testing.T) {
	first, second := newSigner(t, "k1"), newSigner(t, "k2")
	server := startKeyServer(t, encodeKeySet(first))
	i := testIssuer(nil)
	i.JWKS, i.JWKSURL = "", server.URL
	transport := &http.Transport{DisableKeepAlives: true}
	v := New(Config{Client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}})
	v.SetIssuers([]spec.TokenIssuer{i})
	s := (*v.issuers.Load())[0]
	token := first.signClaims(t, validClaims())
	if _, err := v.VerifyToken(token, testNow()); !errors.Is(err, ErrUnknownKey) || server.fetchCount.Load() != 0 {
		t.Fatalf("before any fetch a token is judged %v, after %d fetches", err, server.fetchCount.Load())
	}
	now := time.Now()
	if next := s.fetchIfDue(context.Background(), v, now); next < refreshInterval-time.Minute {
		t.Fatalf("the next fetch is in %v", next)
	}
	if _, err := v.VerifyToken(token, testNow()); err != nil {
		t.Fatal(err)
	}
	rotated := encodeKeySet(second)
	server.body.Store(&rotated)
	for range 100 {
		if _, err := v.VerifyToken(second.signClaims(t, validClaims()), testNow()); !errors.Is(err, ErrUnknownKey) {
			t.Fatal(err)
		}
		s.fetchIfDue(context.Background(), v, now.Add(time.Second))
	}
	if n := server.fetchCount.Load(); n != 1 {
		t.Fatalf("unknown keys made %d fetches within a second", n)
	}
	s.fetchIfDue(context.Background(), v, now.Add(retryInterval+time.Second))
	if _, err := v.VerifyToken(second.signClaims(t, validClaims()), testNow()); err != nil {
		t.Fatal(err)
	}
	if _, err := v.VerifyToken(token, testNow()); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a token that was remembered, of a key that is gone, is judged %v", err)
	}
	at := now.Add(time.Hour)
	for name, body := range map[string]string{
		"garbage": "<html>", "nothing": `{"keys":[]}`, "a secret": `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`, "huge": strings.Repeat(" ", maxKeySetBytes) + `{"keys":[]}`,
	} {
		text := []byte(body)
		server.body.Store(&text)
		at = at.Add(time.Hour)
		s.fetchIfDue(context.Background(), v, at)
		if _, err := v.VerifyToken(second.signClaims(t, validClaims()), testNow()); err != nil {
			t.Errorf("after %s was fetched: %v", name, err)
		}
	}
	for _, status := range []int64{http.StatusInternalServerError, http.StatusFound} {
		server.body.Store(&rotated)
		server.status.Store(status)
		at = at.Add(time.Hour)
		s.fetchIfDue(context.Background(), v, at)
		if !s.fetchFailed {
			t.Errorf("an answer of %d was taken", status)
		}
	}
}

// TestKeysSurviveARestart: a node that starts while the issuer is unreachable uses the persisted keys.
func TestKeysSurviveARestart(t *testing.T) {
	k, dir := newSigner(t, "k1"), t.TempDir()
	server := startKeyServer(t, encodeKeySet(k))
	i := testIssuer(nil)
	i.JWKS, i.JWKSURL = "", server.URL
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	v := New(Config{Client: client, Dir: dir})
	v.SetIssuers([]spec.TokenIssuer{i})
	(*v.issuers.Load())[0].fetchIfDue(context.Background(), v, time.Now())
	token := k.signClaims(t, validClaims())
	if _, err := v.VerifyToken(token, testNow()); err != nil {
		t.Fatal(err)
	}
	again := New(Config{Client: client, Dir: dir})
	again.SetIssuers([]spec.TokenIssuer{i})
	if _, err := again.VerifyToken(token, testNow()); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "keys-*.json"))
	if len(files) != 1 || os.WriteFile(files[0], []byte("rubbish"), 0o600) != nil {
		t.Fatalf("%v are kept", files)
	}
	again = New(Config{Client: client, Dir: dir})
	if again.SetIssuers([]spec.TokenIssuer{i}); len((*again.issuers.Load())[0].candidateKeys("", "ES256")) != 0 {
		t.Error("rubbish was taken for keys")
	}
}

func TestRunFetcherEndsWithContext(t *testing.T) {
	k := newSigner(t, "k1")
	server := startKeyServer(t, encodeKeySet(k))
	i := testIssuer(nil)
	i.JWKS, i.JWKSURL = "", server.URL
	v := New(Config{Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		v.RunFetcher(ctx)
		close(done)
	}()
	v.SetIssuers([]spec.TokenIssuer{i})
	token := k.signClaims(t, validClaims())
	testkit.EventuallySucceeds(t, testkit.WaitBound, "the fetched keys verify a token", func() error {
		_, err := v.VerifyToken(token, testNow())
		return err
	})
	cancel()
	<-done
}

func TestWeakKeysAreIgnored(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Skip("this Go makes none")
	}
	if _, err := ParseKeys(encodeKeySet(testSigner{"w", "RS256", weak})); err == nil {
		t.Error("a key of 1024 bits was taken")
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add(encodeKeySet(newSigner(f, "k1")))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"OKP","crv":"Ed25519","x":""},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		keys, err := ParseKeys(text)
		if err == nil && (len(keys) == 0 || len(keys) > maxKeys) {
			t.Fatalf("%d keys", len(keys))
		}
		for i := range keys {
			if !keys[i].IsPublic() {
				t.Fatal("a key that is not public")
			}
		}
	})
}

// FuzzVerifyToken: only signed tokens are accepted.
func FuzzVerifyToken(f *testing.F) {
	k := newSigner(f, "k1")
	v := newTestVerifier(testIssuer(encodeKeySet(k)))
	f.Add("a.b.c")
	f.Add(strings.Replace(k.signClaims(f, validClaims()), ".", ".A", 1))
	f.Add(`eyJhbGciOiJub25lIn0.e30.`)
	f.Fuzz(func(t *testing.T, token string) {
		if c, err := v.VerifyToken(token, testNow()); err == nil {
			t.Fatalf("taken for %+v", c)
		}
	})
}

// FuzzClaims signs arbitrary claims: they are accepted or refused without a panic.
func FuzzClaims(f *testing.F) {
	k := newSigner(f, "k1")
	i := testIssuer(encodeKeySet(k))
	i.ClassClaim = "tier"
	f.Add([]byte(`{"iss":"https://login","aud":"spillway","sub":"acme","exp":9999999999,"tier":["x"]}`))
	f.Add([]byte(`{"iss":"https://login","aud":{},"exp":1e400,"sub":{"a":[[[]]]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		sig, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: k.key}, (&jose.SignerOptions{}).WithHeader("kid", "k1"))
		if err != nil {
			t.Fatal(err)
		}
		out, err := sig.Sign(body)
		if err != nil {
			t.Skip()
		}
		text, err := out.CompactSerialize()
		if err != nil {
			t.Skip()
		}
		if c, err := newTestVerifier(i).VerifyToken(text, testNow()); err == nil && c.Tenant == "" {
			t.Fatal("taken for nobody")
		}
	})
}

func BenchmarkVerifyCached(b *testing.B) {
	k := newSigner(b, "k1")
	v := newTestVerifier(testIssuer(encodeKeySet(k)))
	token := k.signClaims(b, validClaims())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.VerifyToken(token, testNow()); err != nil {
			b.Fatal(err)
		}
	}
}
