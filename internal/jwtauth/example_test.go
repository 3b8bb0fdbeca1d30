package jwtauth_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/spillway-lb/spillway/internal/jwtauth"
	"github.com/spillway-lb/spillway/internal/spec"
)

// A token of an issuer in the spec names a tenant.
func ExampleVerifier_VerifyToken() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	public, _ := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig"}}})
	now := time.Unix(1_800_000_000, 0)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k1"}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	signed, _ := signer.Sign(fmt.Appendf(nil, `{"iss":"https://id.example","aud":"spillway","sub":"acme","exp":%d}`, now.Unix()+60))
	token, _ := signed.CompactSerialize()

	v := jwtauth.New(jwtauth.Config{})
	v.SetIssuers([]spec.TokenIssuer{{Issuer: "https://id.example", Audience: []string{"spillway"}, JWKS: string(public), Algorithms: []string{"ES256"}, TenantClaim: "sub"}})
	caller, err := v.VerifyToken(token, now)
	fmt.Println(caller.Tenant, err)
	_, err = v.VerifyToken(token, now.Add(time.Hour))
	fmt.Println(err)
	// Output:
	// acme <nil>
	// the token has expired: get a new one
}
