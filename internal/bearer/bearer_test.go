package bearer

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
	"go.uber.org/goleak"

	"github.com/spillway-lb/spillway/internal/spec"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// signer is an issuer's key.
type signer struct {
	id, algorithm string
	key           crypto.Signer
}

func newSigner(t testing.TB, id string) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signer{id, "ES256", key}
}

func keySet(signers ...signer) []byte {
	var set jose.JSONWebKeySet
	for _, s := range signers {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: s.key.Public(), KeyID: s.id, Algorithm: s.algorithm, Use: "sig"})
	}
	b, _ := json.Marshal(set)
	return b
}

func (s signer) sign(t testing.TB, claims map[string]any) string {
	t.Helper()
	return compact(t, jose.SigningKey{Algorithm: jose.SignatureAlgorithm(s.algorithm), Key: s.key}, s.id, claims)
}

func compact(t testing.TB, key jose.SigningKey, id string, claims map[string]any) string {
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

func noon() time.Time { return time.Unix(1_800_000_000, 0) }

func good() map[string]any {
	return map[string]any{"iss": "https://login", "aud": []string{"spillway"}, "sub": "acme", "exp": noon().Add(time.Hour).Unix()}
}

func with(key string, value any) map[string]any {
	c := good()
	if c[key] = value; value == nil {
		delete(c, key)
	}
	return c
}

func issuer(keys []byte) spec.Issuer {
	return spec.Issuer{
		Issuer: "https://login", Audience: []string{"spillway", "other"}, JWKS: string(keys), Algorithms: []string{"ES256", "RS256"},
		TenantClaim: "sub", Leeway: spec.Duration(time.Minute),
	}
}

func verifier(issuers ...spec.Issuer) *Verifier {
	v := New(Config{})
	v.Adopt(issuers)
	return v
}

func TestTokens(t *testing.T) {
	ours, theirs := newSigner(t, "k1"), newSigner(t, "k1")
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public := signer{"r1", "RS256", rsaKey}
	v := verifier(issuer(keySet(ours, public)))
	der, err := x509.MarshalPKIXPublicKey(rsaKey.Public())
	if err != nil {
		t.Fatal(err)
	}
	asSecret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	b64 := base64.RawURLEncoding.EncodeToString
	body, _ := json.Marshal(good())
	unsigned := b64([]byte(`{"alg":"none","kid":"k1"}`)) + "." + b64(body) + "."
	whole := ours.sign(t, good())
	parts := strings.Split(whole, ".")
	other, _ := json.Marshal(with("sub", "bolt"))
	for name, c := range map[string]struct {
		token string
		want  error
	}{
		"good":                             {whole, nil},
		"RSA":                              {public.sign(t, good()), nil},
		"no algorithm":                     {unsigned, ErrAlgorithm},
		"no algorithm, capitals":           {b64([]byte(`{"alg":"NONE"}`)) + "." + b64(body) + ".", ErrAlgorithm},
		"the public key as a secret":       {compact(t, jose.SigningKey{Algorithm: jose.HS256, Key: asSecret}, "r1", good()), ErrAlgorithm},
		"an algorithm that is not allowed": {compact(t, jose.SigningKey{Algorithm: jose.PS256, Key: rsaKey}, "r1", good()), ErrAlgorithm},
		"another's key":                    {theirs.sign(t, good()), ErrSignature},
		"one key's id, another's kind":     {compact(t, jose.SigningKey{Algorithm: jose.RS256, Key: rsaKey}, "k1", good()), ErrKey},
		"a key that is not known":          {signer{"k9", "ES256", ours.key}.sign(t, good()), ErrKey},
		"changed claims":                   {parts[0] + "." + b64(other) + "." + parts[2], ErrSignature},
		"no signature":                     {parts[0] + "." + parts[1] + ".", ErrSignature},
		"expired":                          {ours.sign(t, with("exp", noon().Add(-2*time.Minute).Unix())), ErrExpired},
		"just expired, by another clock":   {ours.sign(t, with("exp", noon().Add(-50*time.Second).Unix())), nil},
		"from the future":                  {ours.sign(t, with("nbf", noon().Add(2*time.Minute).Unix())), ErrEarly},
		"from a clock that is ahead":       {ours.sign(t, with("nbf", noon().Add(50*time.Second).Unix())), nil},
		"without an end":                   {ours.sign(t, with("exp", nil)), ErrEndless},
		"an end that is no number":         {ours.sign(t, with("exp", "tomorrow")), ErrMalformed},
		"another audience":                 {ours.sign(t, with("aud", "elsewhere")), ErrAudience},
		"no audience":                      {ours.sign(t, with("aud", nil)), ErrAudience},
		"another issuer":                   {ours.sign(t, with("iss", "https://evil")), ErrIssuer},
		"no issuer":                        {ours.sign(t, with("iss", nil)), ErrIssuer},
		"no tenant":                        {ours.sign(t, with("sub", nil)), ErrTenant},
		"a tenant that is no text":         {ours.sign(t, with("sub", []int{1})), ErrMalformed},
		"huge":                             {ours.sign(t, with("pad", strings.Repeat("x", MaxToken))), ErrMalformed},
		"no token":                         {"a.b.c", ErrMalformed},
		"empty":                            {"", ErrMalformed},
		"deep":                             {b64([]byte(`{"alg":"ES256"}`)) + "." + b64([]byte(strings.Repeat("[", 3000))) + ".AA", ErrMalformed},
	} {
		for range 2 { // the second time it may be remembered
			got, err := v.Verify(c.token, noon())
			if !errors.Is(err, c.want) || c.want == nil && (err != nil || got.Tenant != "acme") {
				t.Errorf("%s: %+v, %v, want %v", name, got, err, c.want)
			}
		}
	}
}

func TestWhoIsMeant(t *testing.T) {
	k := newSigner(t, "k1")
	for name, c := range map[string]struct {
		change func(*spec.Issuer)
		claims map[string]any
		want   Caller
		err    error
	}{
		"one for all":           {func(i *spec.Issuer) { i.Tenant = "bolt" }, good(), Caller{Tenant: "bolt"}, nil},
		"by a table":            {func(i *spec.Issuer) { i.Tenants = map[string]string{"acme": "bolt"} }, good(), Caller{Tenant: "bolt"}, nil},
		"not in the table":      {func(i *spec.Issuer) { i.Tenants = map[string]string{"x": "bolt"} }, good(), Caller{}, ErrTenant},
		"by another claim":      {func(i *spec.Issuer) { i.TenantClaim = "org" }, with("org", "bolt"), Caller{Tenant: "bolt"}, nil},
		"with a class":          {func(i *spec.Issuer) { i.ClassClaim = "tier" }, with("tier", "standard"), Caller{Tenant: "acme", Class: spec.Standard}, nil},
		"with an odd class":     {func(i *spec.Issuer) { i.ClassClaim = "tier" }, with("tier", "gold"), Caller{Tenant: "acme", Class: spec.Batch}, nil},
		"without its class":     {func(i *spec.Issuer) { i.ClassClaim = "tier" }, good(), Caller{Tenant: "acme", Class: spec.Batch}, nil},
		"class that is no text": {func(i *spec.Issuer) { i.ClassClaim = "tier" }, with("tier", 3), Caller{Tenant: "acme", Class: spec.Batch}, nil},
	} {
		i := issuer(keySet(k))
		c.change(&i)
		if got, err := verifier(i).Verify(k.sign(t, c.claims), noon()); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestWhatIsRememberedExpires: a token that was verified is not verified again, and holds no longer than it says.
func TestWhatIsRememberedExpires(t *testing.T) {
	k := newSigner(t, "k1")
	counts := map[string]int{}
	v := New(Config{Count: func(o string) { counts[o]++ }})
	v.Adopt([]spec.Issuer{issuer(keySet(k))})
	token := k.sign(t, good())
	for range 3 {
		if _, err := v.Verify(token, noon()); err != nil {
			t.Fatal(err)
		}
	}
	if counts["verified"] != 1 || counts["cached"] != 2 {
		t.Errorf("%v", counts)
	}
	if _, err := v.Verify(token, noon().Add(time.Hour+2*time.Minute)); !errors.Is(err, ErrExpired) {
		t.Errorf("after its end it is judged %v", err)
	}
	for n := range 3 * maxSeen { // of one valid token nobody can make many, but a tenant has many
		v.seen.put(v.seen.id(fmt.Sprint(n)), verified{}, v.seen.round())
	}
	if n := len(v.seen.young) + len(v.seen.old); n > maxSeen {
		t.Errorf("%d tokens are remembered", n)
	}
	v.Adopt(nil)
	if _, err := v.Verify(token, noon()); !errors.Is(err, ErrIssuer) {
		t.Errorf("after its issuer left the spec it is judged %v", err)
	}
}

// keyServer serves a key set that a test changes.
type keyServer struct {
	*httptest.Server
	body    atomic.Pointer[[]byte]
	status  atomic.Int64
	fetched atomic.Int64
}

func serveKeys(t *testing.T, body []byte) *keyServer {
	s := &keyServer{}
	s.body.Store(&body)
	s.status.Store(http.StatusOK)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.fetched.Add(1)
		if s.status.Load() == http.StatusFound {
			w.Header().Set("Location", "http://127.0.0.1:1/")
		}
		w.WriteHeader(int(s.status.Load()))
		_, _ = w.Write(*s.body.Load())
	}))
	t.Cleanup(s.Close)
	return s
}

// TestKeysAreFetched: never by a request, again when a key is not known but not in haste, and those before stay when a
// fetch fails, whatever it answers.
func TestKeysAreFetched(t *testing.T) {
	first, second := newSigner(t, "k1"), newSigner(t, "k2")
	server := serveKeys(t, keySet(first))
	i := issuer(nil)
	i.JWKS, i.JWKSURL = "", server.URL
	transport := &http.Transport{DisableKeepAlives: true}
	v := New(Config{Client: &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}})
	v.Adopt([]spec.Issuer{i})
	s := (*v.sources.Load())[0]
	token := first.sign(t, good())
	if _, err := v.Verify(token, noon()); !errors.Is(err, ErrKey) || server.fetched.Load() != 0 {
		t.Fatalf("before any fetch a token is judged %v, after %d fetches", err, server.fetched.Load())
	}
	now := time.Now()
	if next := s.tend(context.Background(), v, now); next < refresh-time.Minute {
		t.Fatalf("the next fetch is in %v", next)
	}
	if _, err := v.Verify(token, noon()); err != nil {
		t.Fatal(err)
	}
	rotated := keySet(second)
	server.body.Store(&rotated)
	for range 100 {
		if _, err := v.Verify(second.sign(t, good()), noon()); !errors.Is(err, ErrKey) {
			t.Fatal(err)
		}
		s.tend(context.Background(), v, now.Add(time.Second))
	}
	if n := server.fetched.Load(); n != 1 {
		t.Fatalf("unknown keys made %d fetches within a second", n)
	}
	s.tend(context.Background(), v, now.Add(again+time.Second))
	if _, err := v.Verify(second.sign(t, good()), noon()); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(token, noon()); !errors.Is(err, ErrKey) {
		t.Errorf("a token that was remembered, of a key that is gone, is judged %v", err)
	}
	at := now.Add(time.Hour)
	for name, body := range map[string]string{
		"garbage": "<html>", "nothing": `{"keys":[]}`, "a secret": `{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}`, "huge": strings.Repeat(" ", maxKeySet) + `{"keys":[]}`,
	} {
		text := []byte(body)
		server.body.Store(&text)
		at = at.Add(time.Hour)
		s.tend(context.Background(), v, at)
		if _, err := v.Verify(second.sign(t, good()), noon()); err != nil {
			t.Errorf("after %s was fetched: %v", name, err)
		}
	}
	for _, status := range []int64{http.StatusInternalServerError, http.StatusFound} {
		server.body.Store(&rotated)
		server.status.Store(status)
		at = at.Add(time.Hour)
		s.tend(context.Background(), v, at)
		if !s.failed {
			t.Errorf("an answer of %d was taken", status)
		}
	}
}

// TestKeysSurviveARestart: a node that starts while the issuer is away goes by the keys that it had.
func TestKeysSurviveARestart(t *testing.T) {
	k, dir := newSigner(t, "k1"), t.TempDir()
	server := serveKeys(t, keySet(k))
	i := issuer(nil)
	i.JWKS, i.JWKSURL = "", server.URL
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	v := New(Config{Client: client, Dir: dir})
	v.Adopt([]spec.Issuer{i})
	(*v.sources.Load())[0].tend(context.Background(), v, time.Now())
	token := k.sign(t, good())
	if _, err := v.Verify(token, noon()); err != nil {
		t.Fatal(err)
	}
	again := New(Config{Client: client, Dir: dir})
	again.Adopt([]spec.Issuer{i})
	if _, err := again.Verify(token, noon()); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "keys-*.json"))
	if len(files) != 1 || os.WriteFile(files[0], []byte("rubbish"), 0o600) != nil {
		t.Fatalf("%v are kept", files)
	}
	again = New(Config{Client: client, Dir: dir})
	if again.Adopt([]spec.Issuer{i}); len((*again.sources.Load())[0].candidates("", "ES256")) != 0 {
		t.Error("rubbish was taken for keys")
	}
}

func TestRunEnds(t *testing.T) {
	k := newSigner(t, "k1")
	server := serveKeys(t, keySet(k))
	i := issuer(nil)
	i.JWKS, i.JWKSURL = "", server.URL
	v := New(Config{Client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		v.Run(ctx)
		close(done)
	}()
	v.Adopt([]spec.Issuer{i})
	token := k.sign(t, good())
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := v.Verify(token, noon()); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	cancel()
	<-done
}

func TestWeakKeysAreLeftOut(t *testing.T) {
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Skip("this Go makes none")
	}
	if _, err := ParseKeys(keySet(signer{"w", "RS256", weak})); err == nil {
		t.Error("a key of 1024 bits was taken")
	}
}

func FuzzParseKeys(f *testing.F) {
	f.Add(keySet(newSigner(f, "k1")))
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

// FuzzVerify holds that nothing but what was signed is taken, whatever stands in it.
func FuzzVerify(f *testing.F) {
	k := newSigner(f, "k1")
	v := verifier(issuer(keySet(k)))
	f.Add("a.b.c")
	f.Add(strings.Replace(k.sign(f, good()), ".", ".A", 1))
	f.Add(`eyJhbGciOiJub25lIn0.e30.`)
	f.Fuzz(func(t *testing.T, token string) {
		if c, err := v.Verify(token, noon()); err == nil {
			t.Fatalf("taken for %+v", c)
		}
	})
}

// FuzzClaims signs whatever claims there are: they are read or refused.
func FuzzClaims(f *testing.F) {
	k := newSigner(f, "k1")
	i := issuer(keySet(k))
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
		if c, err := verifier(i).Verify(text, noon()); err == nil && c.Tenant == "" {
			t.Fatal("taken for nobody")
		}
	})
}

func BenchmarkVerifyCached(b *testing.B) {
	k := newSigner(b, "k1")
	v := verifier(issuer(keySet(k)))
	token := k.sign(b, good())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := v.Verify(token, noon()); err != nil {
			b.Fatal(err)
		}
	}
}
