package jwtauth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
)

// TestCandidateKeysMatchTheAlgorithm: a token is checked only with keys of its algorithm's type, regardless of
// the alg in the set.
func TestCandidateKeysMatchTheAlgorithm(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edKey, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &issuerKeys{}
	s.keys.Store(&[]jose.JSONWebKey{
		{KeyID: "rsa", Key: rsaKey.Public()},
		{KeyID: "ec", Key: ecKey.Public()},
		{KeyID: "ed", Key: edKey},
		{KeyID: "ps", Key: rsaKey.Public(), Algorithm: "PS256"},
		{KeyID: "odd", Key: ecKey.Public(), Algorithm: "RS256"},
	})
	for _, c := range []struct{ id, algorithm, want string }{
		{"", "RS256", "rsa"},
		{"", "PS256", "rsa ps"},
		{"", "ES256", "ec"},
		{"", "EdDSA", "ed"},
		{"", "HS256", ""},
		{"ec", "ES256", "ec"},
		{"ec", "RS256", ""},
		{"odd", "RS256", ""},
		{"odd", "ES256", ""},
	} {
		var got []string
		for _, k := range s.candidateKeys(c.id, c.algorithm) {
			got = append(got, k.KeyID)
		}
		if !slices.Equal(got, strings.Fields(c.want)) {
			t.Errorf("for %s with key %q: %v, want %s", c.algorithm, c.id, got, c.want)
		}
	}
}
