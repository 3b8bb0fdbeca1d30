package spec_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

func changeLines(from, to *spec.Spec) (out []string) {
	for _, c := range spec.DiffSpecs(from, to) {
		out = append(out, c.String())
	}
	return out
}

// TestDiffTellsItemsWithoutNameApart: `spillway apply` does nothing for a spec without changes, so removing an issuer,
// a timed key or a CAA record must be one.
func TestDiffTellsItemsWithoutNameApart(t *testing.T) {
	issuer := func(name string) spec.TokenIssuer { return spec.TokenIssuer{Issuer: name, TenantClaim: "sub"} }
	key := func(name string) spec.TimedKey { return spec.TimedKey{Hash: spec.HashKey(name)} }
	caa := func(value string) spec.CAAProperty { return spec.CAAProperty{Tag: "issue", Value: value} }
	digits := func(name string) string { return spec.HashKey(name)[:15] + "..." }
	from := &spec.Spec{
		Zone: spec.DNSZone{CAA: []spec.CAAProperty{caa("one.example"), caa("two.example")}}, Issuers: []spec.TokenIssuer{issuer("https://one"), issuer("https://two")},
		Tenants: []spec.Tenant{{Name: "acme", TimedKeys: []spec.TimedKey{key("one"), key("two")}}},
	}
	to := &spec.Spec{
		Zone: spec.DNSZone{CAA: []spec.CAAProperty{caa("two.example")}}, Issuers: []spec.TokenIssuer{issuer("https://two")},
		Tenants: []spec.Tenant{{Name: "acme", TimedKeys: []spec.TimedKey{key("two"), key("three")}}},
	}
	want := []string{
		"zone.caa[issue one.example]: present -> absent",
		"tenants[acme].timed_keys[" + digits("one") + "]: present -> absent",
		"tenants[acme].timed_keys[" + digits("three") + "]: absent -> present",
		"issuers[https://one]: present -> absent",
	}
	if diff := cmp.Diff(want, changeLines(from, to)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// TestDiffShowsOrderOfPools: a request belongs to the first pool that it matches.
func TestDiffShowsOrderOfPools(t *testing.T) {
	pool := func(name string) spec.WorkerPool { return spec.WorkerPool{Name: name} }
	from := &spec.Spec{Pools: []spec.WorkerPool{pool("a"), pool("b"), pool("c")}}
	to := &spec.Spec{Pools: []spec.WorkerPool{pool("b"), pool("d"), pool("a")}}
	want := []string{"pools[c]: present -> absent", "pools[d]: absent -> present", "pools: [a, b] -> [b, a]"}
	if diff := cmp.Diff(want, changeLines(from, to)); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if got := changeLines(from, &spec.Spec{Pools: slices.Concat(from.Pools[:1], from.Pools[2:])}); len(got) != 1 {
		t.Errorf("removing a pool changes the order of the others: %v", got)
	}
}

// TestEveryListItemHasAnIdentity: DiffSpecs distinguishes the items of every list of structs.
func TestEveryListItemHasAnIdentity(t *testing.T) {
	var visit func(path string, at reflect.Type)
	visit = func(path string, at reflect.Type) {
		for i := range at.NumField() {
			f := at.Field(i)
			switch {
			case f.Tag.Get("yaml") == "" || f.Type == reflect.TypeFor[netip.Addr]():
			case f.Type.Kind() == reflect.Struct:
				visit(path+"."+f.Name, f.Type)
			case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct && f.Type.Elem() != reflect.TypeFor[netip.Addr]():
				if !spec.HasIdentity(f.Type.Elem()) {
					t.Errorf("items of %s.%s have no identity: DiffSpecs cannot tell them apart", path, f.Name)
				}
				visit(path+"."+f.Name+"[]", f.Type.Elem())
			}
		}
	}
	visit("Spec", reflect.TypeFor[spec.Spec]())
}

// TestDiffEqualsReference compares DiffSpecs of drawn specs with comparing every formatted value.
func TestDiffEqualsReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one, two := drawSpec(t), drawSpec(t)
		for _, s := range []*spec.Spec{one, two} { // the reference takes all of these lists' items for one
			for i := range s.Tenants {
				s.Tenants[i].TimedKeys = nil
			}
			s.Zone.CAA, s.Issuers, s.Pools = nil, nil, nil
		}
		if rapid.Bool().Draw(t, "same base") {
			isKnown := func(r spec.Region) bool { return one.FindRegion(r.Name) != nil }
			two.Regions = append(slices.DeleteFunc(two.Regions, isKnown), one.Regions...)
			two.Models, two.Tenants = one.Models, append(slices.Clone(one.Tenants), spec.Tenant{Name: "only the second has it"})
		}
		if diff := cmp.Diff(referenceDiff(one, two), spec.DiffSpecs(one, two)); diff != "" {
			t.Fatalf("changes (-reference +got):\n%s", diff)
		}
	})
}

// TestEncodeEqualsReference: a spec has the same bytes as in earlier releases, which the nodes of a cluster compare.
func TestEncodeEqualsReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)
		if diff := cmp.Diff(string(referenceEncode(s)), string(spec.Encode(s))); diff != "" {
			t.Fatalf("encoding (-reference +got):\n%s", diff)
		}
	})
	for _, s := range []*spec.Spec{{}, validSpec(t), {Tenants: []spec.Tenant{{}}, Models: make([]spec.Model, 2)}} {
		if diff := cmp.Diff(string(referenceEncode(s)), string(spec.Encode(s))); diff != "" {
			t.Errorf("encoding (-reference +got):\n%s", diff)
		}
	}
}

// TestEncodedSpecsDecodeAsParsed: what a node sends to others decodes without a tree, and to the same spec.
func TestEncodedSpecsDecodeAsParsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := spec.Encode(drawSpec(t))
		plain := spec.DecodePlainSpec(text, false)
		parsed, err := spec.DecodeSpecTree("drawn.yaml", text, false)
		if plain == nil || err != nil {
			t.Fatalf("plain decoding: %v, parsing: %v\n%s", plain != nil, err, text)
		}
		if !reflect.DeepEqual(parsed, plain) {
			t.Fatalf("plain decoding differs from parsing (-parsed +plain):\n%s", cmp.Diff(parsed, plain, equalOptions))
		}
	})
}

// FuzzPlainSpec: a spec that is decoded without a tree is the one that parsing gives.
func FuzzPlainSpec(f *testing.F) {
	const zone, service = "zone: {name: a., nameservers: [{name: n., addresses: [1.1.1.1]}]}\n", "services: [{name: a.}]\n"
	const region, model = "regions: [{name: r, place: {lat: 1}, gateways: [{name: g, addresses: [1.1.1.2], url: 'http://b'}]}]\n", "models: [{name: m}]\n"
	for _, rest := range []string{
		"", "aliases: [{name: x, targets: [{model: m, weight: 1}]}]\n", "tenants:\n  - name: t\n    class: batch\n    limits: {concurrency: 1}\n",
		"pools: [{name: p, labels: {a: b}, classes: [interactive]}]\n", "steering: {interval: 2s, dead_band: 0.1}\n", "routing: # c\n  policy: round_robin\n  spill: false\n",
	} {
		f.Add([]byte(zone+service+region+model+rest), false)
		f.Add([]byte(model+rest), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, alone bool) {
		plain := spec.DecodePlainSpec(text, alone)
		if plain == nil {
			return
		}
		parsed, err := spec.DecodeSpecTree("fuzz", text, alone)
		if err != nil {
			t.Fatalf("plain decoding accepts what parsing refuses: %v\n%s", err, text)
		}
		if !reflect.DeepEqual(parsed, plain) {
			t.Fatalf("plain decoding differs from parsing (-parsed +plain):\n%s", cmp.Diff(parsed, plain, equalOptions))
		}
	})
}

// largeText is a spec of n tenants as Encode writes it.
func largeText(t testing.TB, n int) []byte {
	s := validSpec(t)
	for i := range n {
		s.Tenants = append(s.Tenants, spec.Tenant{
			Name: fmt.Sprintf("t%d", i), Keys: []string{spec.HashKey(fmt.Sprint(i))}, Class: spec.Standard, Weight: 1, Budget: spec.Budget{WhenSpent: spec.SpentStop},
			Limits: spec.TenantLimits{Scope: spec.ScopeRegion, RequestsPerMinute: 100 + i},
		})
	}
	return spec.Encode(s)
}

// TestLargeSpecAllocatesLittle: each node decodes each version, so a tenant costs few allocations.
func TestLargeSpecAllocatesLittle(t *testing.T) {
	const few, many, most = 1000, 3000, 24.0
	allocations := func(n int) float64 {
		text := largeText(t, n)
		return testing.AllocsPerRun(2, func() {
			if _, err := spec.Decode("large", text); err != nil {
				t.Fatal(err)
			}
		})
	}
	if each := (allocations(many) - allocations(few)) / (many - few); each > most {
		t.Errorf("decoding costs %.1f allocations for each tenant, want at most %.0f", each, most)
	}
}
