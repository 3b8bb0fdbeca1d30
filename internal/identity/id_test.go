package identity_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/identity"
)

func TestParseID(t *testing.T) {
	long := strings.Repeat("n", 129)
	for uri, want := range map[string]*identity.ID{
		"spiffe://demo.local/global/g1":                      {TrustDomain: "demo.local", Role: identity.RoleGlobal, Name: "g1"},
		"spiffe://demo.local/region/eu/gateway/gw-1":         {TrustDomain: "demo.local", Role: identity.RoleGateway, Region: "eu", Name: "gw-1"},
		"spiffe://demo.local/region/eu/zone/a/local/L_1.b":   {TrustDomain: "demo.local", Role: identity.RoleLocal, Region: "eu", Zone: "a", Name: "L_1.b"},
		"spiffe://demo.local/operator/alice":                 {TrustDomain: "demo.local", Role: identity.RoleOperator, Name: "alice"},
		"":                                                   nil,
		"https://demo.local/global/g1":                       nil,
		"spiffe://demo.local":                                nil,
		"spiffe://demo.local/":                               nil,
		"spiffe:///global/g1":                                nil,
		"spiffe://demo.local/global/":                        nil,
		"spiffe://demo.local/global/g1/":                     nil,
		"spiffe://demo.local//global/g1":                     nil,
		"spiffe://demo.local/global/..":                      nil,
		"spiffe://demo.local/global/g%31":                    nil,
		"spiffe://demo.local/global/g1?x=1":                  nil,
		"spiffe://demo.local/global/g1#x":                    nil,
		"spiffe://demo.local:443/global/g1":                  nil,
		"spiffe://user@demo.local/global/g1":                 nil,
		"spiffe://Demo.local/global/g1":                      nil,
		"spiffe://demo.local/region/eu/zone/a/local":         nil,
		"spiffe://demo.local/region//gateway/g1":             nil,
		"spiffe://demo.local/elsewhere/g1":                   nil,
		"spiffe://demo.local/global/" + long:                 nil,
		"spiffe://demo.local/global/a\n":                     nil,
		"spiffe://" + strings.Repeat("d", 256) + "/global/a": nil,
	} {
		id, err := identity.ParseID(uri)
		switch {
		case want == nil && !errors.Is(err, identity.ErrInvalidID):
			t.Errorf("ParseID(%q) = %+v, %v; want ErrBadID", uri, id, err)
		case want != nil && (err != nil || id != *want || id.String() != uri):
			t.Errorf("ParseID(%q) = %+v, %v; want %+v and the same text again", uri, id, err, *want)
		}
	}
}

func TestValidateRefusesFieldsOfOtherRoles(t *testing.T) {
	for _, id := range []identity.ID{
		{TrustDomain: "d", Role: identity.RoleGlobal, Name: "g", Region: "eu"},
		{TrustDomain: "d", Role: identity.RoleOperator, Name: "o", Zone: "a"},
		{TrustDomain: "d", Role: identity.RoleGateway, Name: "g"},
		{TrustDomain: "d", Role: identity.RoleGateway, Name: "g", Region: "eu", Zone: "a"},
		{TrustDomain: "d", Role: identity.RoleLocal, Name: "l", Region: "eu"},
		{TrustDomain: "d", Role: "", Name: "l"},
	} {
		if id.Validate() == nil {
			t.Errorf("%+v passes for valid", id)
		}
	}
}

func FuzzParseID(f *testing.F) {
	f.Add("spiffe://demo.local/region/eu/zone/a/local/l1")
	f.Add("spiffe://demo.local/global/g1")
	f.Fuzz(func(t *testing.T, uri string) {
		id, err := identity.ParseID(uri)
		if err == nil && id.String() != uri {
			t.Fatalf("ParseID(%q) reads %+v, which writes %q", uri, id, id.String())
		}
	})
}
