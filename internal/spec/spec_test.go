package spec_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/internal/testkit"
	"pgregory.net/rapid"
)

var equalOptions = cmp.Options{cmpopts.EquateComparable(netip.Addr{}), cmpopts.IgnoreUnexported(spec.Spec{}), cmpopts.EquateEmpty()}

func validSpec(t testing.TB) *spec.Spec {
	t.Helper()
	text, err := os.ReadFile("testdata/valid.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Decode("valid.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDecodeAppliesDefaults(t *testing.T) {
	s := validSpec(t)
	for what, pair := range map[string][2]any{
		"contact":         {s.Zone.Contact, "hostmaster.api.example."},
		"zone ttl":        {time.Duration(s.Zone.TTL), time.Hour},
		"mode":            {s.Services[0].Mode, "latency"},
		"ttl":             {time.Duration(s.Services[0].TTL), 20 * time.Second},
		"max_share":       {s.Regions[0].MaxShare, 0.85},
		"max_output":      {s.Models[0].MaxOutput, 1024},
		"bytes_per_token": {s.Models[0].BytesPerToken, 4.0},
		"interactive":     {s.Models[0].TTFT.ForClass(spec.Interactive), time.Second},
		"standard":        {s.Models[0].TTFT.ForClass(spec.Standard), 2 * time.Second},
		"batch":           {s.Models[0].TTFT.ForClass(spec.Batch), 30 * time.Second},
		"class":           {s.Tenants[0].Class, spec.Standard},
		"interval":        {time.Duration(s.Steering.Interval), time.Second},
		"dead_band":       {s.Steering.DeadBand, 0.05},
		"max_step":        {s.Steering.MaxStep, 0.25},
		"min_shift":       {s.Steering.MinShift, 0.02},
		"slew":            {s.Steering.Slew, 0.25},
		"ramp":            {time.Duration(*s.Steering.Ramp), 30 * time.Second},
		"drain_guard":     {*s.Steering.DrainGuard, 0.5},
		"drain_regions":   {*s.Steering.DrainMinRegions, 1},
		"drain_zones":     {*s.Steering.DrainMinZones, 1},
		"drain_capacity":  {*s.Steering.DrainMinCapacity, 0.25},
		"policy":          {s.Routing.Policy, "predictive"},
		"spill":           {*s.Routing.Spill, true},
		"spill_margin":    {time.Duration(s.Routing.SpillMargin), 20 * time.Millisecond},
		"spill_share":     {s.Routing.SpillShare, 0.5},
		"spill_fresh":     {time.Duration(s.Routing.SpillFresh), 3 * time.Second},
		"max_body":        {s.Routing.MaxBody, int64(8 << 20)},
		"retry_budget":    {s.Routing.RetryBudget, 0.1},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s is %v, want %v", what, pair[0], pair[1])
		}
	}
}

func TestDecodedLiteralHasDefaults(t *testing.T) {
	s := &spec.Spec{
		Zone:     spec.DNSZone{Name: "api.example.", Nameservers: []spec.Nameserver{{Name: "ns1.api.example.", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.53")}}}},
		Services: []spec.Service{{Name: "chat.api.example."}},
		Regions: []spec.Region{{
			Name: "fra", Place: spec.Location{Lat: 50, Lon: 8},
			Gateways: []spec.Gateway{{Name: "gw1", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, URL: "http://192.0.2.1:80"}},
		}},
		Models:  []spec.Model{{Name: "tiny"}},
		Tenants: []spec.Tenant{{Name: "acme", Class: spec.Interactive}},
	}
	got, err := spec.Decode("literal", spec.Encode(s))
	if err != nil {
		t.Fatal(err)
	}
	if got.Services[0].Mode != "latency" || got.Routing.MaxBody != 8<<20 || got.Tenants[0].Class != spec.Interactive {
		t.Fatalf("got %+v", got)
	}
}

func TestLookups(t *testing.T) {
	s := validSpec(t)
	s.Tenants[0].Models = []string{"default"}
	if s.FindTenant("acme") == nil || s.FindTenant("nobody") != nil || s.FindRegion("fra").Place.City != "Frankfurt" || s.FindRegion("nrt") != nil {
		t.Error("tenants or regions are not found")
	}
	if s.FindModel("llama-8b") == nil || s.FindModel("default") != nil || s.FindAlias("default") == nil {
		t.Error("models or aliases are not found")
	}
	for name, found := range map[string]bool{
		"chat.api.example.": true, "chat.api.example": true, "CHAT.api.Example.": true, "api.example.": false, "": false, ".": false,
		strings.Repeat("a", 300): false, "chat.api.example..": false,
	} {
		if got := s.FindService(name); (got != nil) != found {
			t.Errorf("Service(%q) is %v", name, got)
		}
	}
	us, eu := s.FindRegion("iad"), s.FindRegion("fra")
	for _, c := range []struct {
		residency []string
		us, eu    bool
	}{{nil, true, true}, {[]string{"eu"}, false, true}, {[]string{"eu", "us"}, true, true}, {[]string{"ch"}, false, false}} {
		tenant := &spec.Tenant{Residency: c.residency}
		if s.PermitsRegion(tenant, us) != c.us || s.PermitsRegion(tenant, eu) != c.eu {
			t.Errorf("residency %v permits us %v, eu %v", c.residency, s.PermitsRegion(tenant, us), s.PermitsRegion(tenant, eu))
		}
	}
	acme := s.FindTenant("acme")
	if !acme.MayUseModel("default", "llama-8b") || acme.MayUseModel("llama-8b", "llama-8b") || !s.Services[0].ServesModel("x", "y") {
		t.Error("lists of models are not honoured")
	}
}

func TestAuthenticate(t *testing.T) {
	s := validSpec(t)
	s.Tenants[0].Keys = []string{spec.HashKey("sk-one"), spec.HashKey("sk-two")}
	s.Tenants = append(s.Tenants, spec.Tenant{Name: "bolt", Keys: []string{spec.HashKey("sk-three")}})
	s, err := spec.Decode("keys", spec.Encode(s))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"sk-one": "acme", "sk-two": "acme", "sk-three": "bolt", "sk-four": "", "": "", "SK-ONE": "",
		strings.Repeat("k", 10_000): "", spec.HashKey("sk-one"): "",
	} {
		got, ok := s.AuthenticateKey(key, time.Now())
		if ok != (want != "") || ok && got.Name != want {
			t.Errorf("key %.10q belongs to %v, want %q", key, got, want)
		}
	}
}

func TestLookupsAllocateNothing(t *testing.T) {
	s := validSpec(t)
	acme, fra := s.FindTenant("acme"), s.FindRegion("fra")
	key := "sk-" + strings.Repeat("x", 60)
	if n := testing.AllocsPerRun(1000, func() {
		s.AuthenticateKey(key, time.Now())
		s.FindService("Chat.API.example")
		s.FindAlias("default")
		s.PermitsRegion(acme, fra)
		s.FindModel("llama-8b")
		s.FindTenant("nobody")
		acme.MayUseModel("default", "llama-8b")
	}); n != 0 {
		t.Fatalf("lookups allocate %v times, want 0", n)
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	s := validSpec(b)
	key := "sk-" + strings.Repeat("x", 60)
	b.ReportAllocs()
	for b.Loop() {
		s.AuthenticateKey(key, time.Now())
	}
}

func BenchmarkDecode(b *testing.B) {
	s := validSpec(b)
	for i := range 1000 {
		s.Tenants = append(s.Tenants, spec.Tenant{Name: fmt.Sprintf("t%d", i), Keys: []string{spec.HashKey(fmt.Sprint(i))}})
	}
	text := spec.Encode(s)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := spec.Decode("bench", text); err != nil {
			b.Fatal(err)
		}
	}
}

func TestDrainPaths(t *testing.T) {
	s := validSpec(t)
	for path, want := range map[string]string{
		"iad": "", "iad/a": "", "iad/a/w1": "", "fra/anything/w-1.2": "", // fra lists no zones
		"":           "is empty",
		"iad/":       "is empty",
		"iad/a/b/c":  "4 parts",
		"nrt":        `unknown region "nrt"`,
		"ida":        `did you mean "iad"?`,
		"iad/c":      `no zone "c": the zones are: a, b`,
		"iad/a/w 1":  `has the character ' '`,
		"IAD":        `has the character 'I'`,
		"iad//w1":    "is empty",
		"../etc":     "has the character '.'",
		"iad/a/\x00": "has the character",
	} {
		err := s.CheckDrain(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("CheckDrain(%q) is %v, want %q", path, err, want)
		}
	}
	r, z, w, err := spec.ParseDrain("iad/a/w1")
	if r != "iad" || z != "a" || w != "w1" || err != nil {
		t.Errorf("ParseDrain is %q %q %q %v", r, z, w, err)
	}
}

func TestDiffSpecs(t *testing.T) {
	from, to := validSpec(t), validSpec(t)
	if got := spec.DiffSpecs(from, to); len(got) != 0 {
		t.Fatalf("the same spec differs: %v", got)
	}
	to.Regions[0], to.Regions[1] = to.Regions[1], to.Regions[0] // the order does not matter
	to.Regions[0].MaxShare = 0.5
	to.Regions[0].Gateways[0].Addresses = append(to.Regions[0].Gateways[0].Addresses, netip.MustParseAddr("2001:db8::1"))
	to.Services[0].Weights = map[string]float64{"fra": 2}
	to.Models = to.Models[:1]
	to.Aliases[0].Targets = append(to.Aliases[0].Targets, spec.AliasTarget{Model: "qwen-32b", Weight: 1})
	to.Tenants[0].Keys = []string{spec.HashKey("new"), "in the clear"}
	to.Tenants = append(to.Tenants, spec.Tenant{Name: "bolt"})
	to.Routing.Spill = new(bool)
	var got []string
	for _, c := range spec.DiffSpecs(from, to) {
		got = append(got, c.String())
	}
	want := []string{
		"services[chat.api.example.].weights.fra: (none) -> 2",
		"regions[fra].gateways[gw1].addresses: [198.51.100.10] -> [198.51.100.10, 2001:db8::1]",
		"regions[fra].max_share: 0.85 -> 0.5",
		"models[qwen-32b]: present -> absent",
		"aliases[default].targets[qwen-32b]: absent -> present",
		"tenants[acme].keys: [sha256:9f86d081...] -> [" + spec.HashKey("new")[:15] + "..., (not a hash)]",
		"tenants[bolt]: absent -> present",
		"routing.spill: true -> false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("changes (-want +got):\n%s", diff)
	}
	if first := spec.DiffSpecs(nil, from); len(first) == 0 {
		t.Error("a first spec changes nothing")
	}
}

func TestErrorsAreStructured(t *testing.T) {
	_, err := spec.Decode("a.yaml", []byte("zone: {name: api.example}\n"))
	var e *spec.Error
	if !errors.As(err, &e) {
		t.Fatalf("error is %T", err)
	}
	text, err := json.Marshal(e)
	if err != nil || !strings.Contains(string(text), `"path":"$.zone.name","line":1,"column":14`) {
		t.Fatalf("as JSON: %s, %v", text, err)
	}
}

func TestDurationAndClassText(t *testing.T) {
	text, err := json.Marshal(struct {
		D spec.Duration
		C spec.Class
	}{spec.Duration(90 * time.Second), spec.Batch})
	if err != nil || string(text) != `{"D":"1m30s","C":"batch"}` {
		t.Fatalf("written %s, %v", text, err)
	}
	var d spec.Duration
	if err := d.UnmarshalText([]byte("20")); err == nil || !strings.Contains(err.Error(), "write the unit: 20s") {
		t.Errorf("a duration without a unit: %v", err)
	}
	if c, err := spec.ParseClass(""); c != spec.Standard || err != nil {
		t.Errorf("no class is %v, %v", c, err)
	}
	if _, err := spec.ParseClass("urgent"); err == nil {
		t.Error("an unknown class is taken")
	}
}

func TestOversizedSpecIsRefusedQuickly(t *testing.T) {
	var b strings.Builder
	b.WriteString("regions:\n")
	for i := range 20_000 {
		fmt.Fprintf(&b, "  - {name: r%d}\n", i)
	}
	_, err := spec.Decode("many.yaml", []byte(b.String()))
	if err == nil || !strings.Contains(err.Error(), "there are 20000 regions, more than 1000") {
		t.Fatalf("error is %.300v", err)
	}
	b.Reset()
	b.WriteString("services:\n  - name: chat.api.example.\n    regions: [" + strings.Repeat("nowhere, ", 50_000) + "]\n")
	_, err = spec.Decode("many.yaml", []byte(b.String()))
	if err == nil || len(err.Error()) > 100_000 {
		t.Fatalf("the message has %d bytes", len(err.Error()))
	}
}

// TestSpecRoundTrip draws valid specs, encodes and decodes them.
func TestSpecRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpec(t)
		text := spec.Encode(s)
		got, err := spec.Decode("drawn.yaml", text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if again := spec.Encode(got); string(again) != string(text) {
			t.Fatalf("written twice (-first +second):\n%s", cmp.Diff(string(text), string(again)))
		}
		if diff := cmp.Diff(s, got, equalOptions); diff != "" {
			t.Fatalf("read back (-want +got):\n%s", diff)
		}
		if changes := spec.DiffSpecs(s, got); len(changes) != 0 {
			t.Fatalf("changes: %v", changes)
		}
	})
}

var labelGen = rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?`)

func drawAutoscaling(t *rapid.T) spec.Autoscaling {
	least := rapid.IntRange(0, 5).Draw(t, "least")
	return spec.Autoscaling{
		Target: rapid.Float64Range(0.05, 1).Draw(t, "use"), Min: &least, Max: rapid.SampledFrom([]int{0, 5, 9}).Draw(t, "most"),
		ColdStart: spec.Duration(rapid.Int64Range(1e6, 7e12).Draw(t, "cold")), ScaleDownAfter: spec.Duration(rapid.Int64Range(1e10, 3e12).Draw(t, "after")),
	}
}

func drawSpec(t *rapid.T) *spec.Spec {
	positive := rapid.Float64Range(0.001, 1)
	labels := rapid.SliceOfNDistinct(labelGen, 0, 3, rapid.ID[string])
	s := &spec.Spec{}
	s.Zone = spec.DNSZone{
		Name: "api.example.", Contact: "ops.api.example.", TTL: spec.Duration(rapid.Int64Range(1e9, 1e13).Draw(t, "ttl")),
		Nameservers: []spec.Nameserver{{Name: "ns1.elsewhere.", Addresses: []netip.Addr{netip.MustParseAddr("2001:db8::53")}}},
		DNSSEC: spec.DNSSEC{
			SignatureLifetime: rapid.SampledFrom([]spec.Duration{0, spec.Duration(60 * 24 * time.Hour)}).Draw(t, "signatures"),
			KeyTTL:            spec.Duration(rapid.Int64Range(1e9, 1e13).Draw(t, "key ttl")), DSTTL: 1e10, Propagation: 1e9,
		},
	}
	models := rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9_./:@+-]{0,20}`), 1, 3, rapid.ID[string]).Draw(t, "models")
	for _, m := range models {
		s.Models = append(s.Models, spec.Model{
			Name: m, MaxContext: rapid.SampledFrom([]int{0, 4096, 1 << 20}).Draw(t, "context"), MaxOutput: rapid.IntRange(1, 4096).Draw(t, "output"),
			BytesPerToken: rapid.Float64Range(0.1, 64).Draw(t, "bytes"), TTFT: spec.TTFTTargets{Interactive: spec.Duration(rapid.Int64Range(1, 1e12).Draw(t, "i")), Standard: 1, Batch: 2},
			WarmReplicas: rapid.IntRange(0, 9).Draw(t, "warm"), IdleAfter: spec.Duration(rapid.SampledFrom([]int64{0, 1e10, 1e13}).Draw(t, "idle")),
			Autoscaling: drawAutoscaling(t),
		})
		if first := s.Models[0].Name; m != first && rapid.Bool().Draw(t, "adapter") {
			s.Models[len(s.Models)-1].Parent, s.Models[len(s.Models)-1].Load.Path = first, "/adapters/"+m
		}
	}
	for i, name := range rapid.SliceOfNDistinct(labelGen, 1, 4, rapid.ID[string]).Draw(t, "regions") {
		at := netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		s.Regions = append(s.Regions, spec.Region{
			Name: name, Zones: labels.Draw(t, "zones"), Residency: append(labels.Draw(t, "residency"), "everywhere-else"),
			Place:    spec.Location{City: rapid.StringMatching(`[\p{L}\p{N}"': #,\[\]{}&*!|>%@\\-]{1,12}`).Draw(t, "city"), Lat: 1 + rapid.Float64Range(0, 89).Draw(t, "lat"), Lon: -1 - rapid.Float64Range(0, 179).Draw(t, "lon")},
			Gateways: []spec.Gateway{{Name: labelGen.Draw(t, "gateway"), Addresses: []netip.Addr{at}, URL: fmt.Sprintf("http://%s:%d", at, rapid.IntRange(1, 65535).Draw(t, "port"))}},
			MaxShare: positive.Draw(t, "share"), BiasMS: float64(rapid.IntRange(-10000, 10000).Draw(t, "bias")),
		})
	}
	service := spec.Service{Name: "chat.api.example.", Mode: rapid.SampledFrom(spec.SteeringModes()).Draw(t, "mode"), TTL: spec.Duration(20 * time.Second), RedirectPort: rapid.IntRange(0, 65535).Draw(t, "port"), Models: models[:1], RedirectProxy: rapid.SampledFrom([]string{spec.ProxyNever, spec.ProxyAsked, spec.ProxyAlways}).Draw(t, "proxy")}
	switch service.Mode {
	case "weighted":
		service.Weights = map[string]float64{s.Regions[0].Name: positive.Draw(t, "weight")}
	case "failover":
		service.Order = []string{s.Regions[0].Name}
	}
	s.Services = []spec.Service{service}
	drawRules(t, s, models)
	for i, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Za-z0-9_.-]{1,12}`), 0, 3, rapid.ID[string]).Draw(t, "tenants") {
		s.Tenants = append(s.Tenants, spec.Tenant{
			Weight: 0.5 + positive.Draw(t, "weight"), PrefixGroup: rapid.SampledFrom([]string{"", "g"}).Draw(t, "group"),
			Name: name, Keys: []string{spec.HashKey(fmt.Sprint(i))}, Class: spec.Class(rapid.IntRange(0, 2).Draw(t, "class")),
			Limits: spec.TenantLimits{Scope: rapid.SampledFrom([]string{spec.ScopeRegion, spec.ScopeGlobal}).Draw(t, "scope"), Concurrency: rapid.IntRange(0, 100).Draw(t, "limit")},
			Budget: spec.Budget{
				TokensPerDay: rapid.Int64Range(0, 1e9).Draw(t, "day"), WhenSpent: rapid.SampledFrom([]string{spec.SpentStop, spec.SpentThrottle}).Draw(t, "spent"),
				DayOffset: spec.Duration(rapid.Int64Range(-14, 14).Draw(t, "offset") * int64(time.Hour)),
			},
			TimedKeys: []spec.TimedKey{{Hash: spec.HashKey(fmt.Sprint("timed", i)), NotBefore: "2026-01-31T00:00:00Z"}},
			Residency: []string{"everywhere-else"}, Models: models, Regions: []string{s.Regions[0].Name}, Resume: new(bool),
		})
	}
	drawPools(t, s, models)
	spill := rapid.Bool().Draw(t, "spill")
	text := rapid.IntRange(0, 1<<20).Draw(t, "text")
	ramp, guard := spec.Duration(rapid.Int64Range(0, 1e12).Draw(t, "ramp")), positive.Draw(t, "guard")/2
	least := rapid.IntRange(0, 9).Draw(t, "least")
	s.Steering = spec.Steering{
		Interval: spec.Duration(time.Second), DeadBand: positive.Draw(t, "band") * 0.9, MaxStep: positive.Draw(t, "step"),
		MinShift: positive.Draw(t, "shift"), Slew: positive.Draw(t, "slew"), Ramp: &ramp, DrainGuard: &guard,
		DrainMinRegions: &least, DrainMinZones: &least, DrainMinCapacity: &guard,
		DollarMS: rapid.Float64Range(0, 100).Draw(t, "dollar"),
	}
	s.Services[0].SessionTokens, s.Services[0].PrefixTokens = rapid.IntRange(0, 1000).Draw(t, "session"), rapid.IntRange(0, 1000).Draw(t, "prefix")
	if rapid.Bool().Draw(t, "canary") {
		s.Services[0].Canary = spec.Canary{Region: s.Regions[0].Name, Share: positive.Draw(t, "share") * 0.9}
	}
	s.Regions[0].BiasPercent, s.Regions[0].Preferred = float64(rapid.IntRange(-99, 99).Draw(t, "percent")), rapid.Bool().Draw(t, "preferred")
	for _, z := range s.Regions[0].Zones {
		s.Regions[0].ZoneWeights = map[string]float64{z: 0.01 + positive.Draw(t, "zone weight")}
	}
	s.Regions[0].Quotas = map[string]float64{models[0]: positive.Draw(t, "quota")}
	s.Routing = spec.Routing{
		Policy: rapid.SampledFrom(spec.WorkerPolicies()).Draw(t, "policy"), Spill: &spill, SpillMargin: spec.Duration(rapid.Int64Range(1, 1e10).Draw(t, "margin")),
		HashKey: rapid.SampledFrom([]string{"session", "tenant", "prefix", "header:X-A"}).Draw(t, "key"), KVOvercommit: 0.5 + 1.5*positive.Draw(t, "overcommit"),
		SpillShare: positive.Draw(t, "spill share"), SpillFresh: spec.Duration(rapid.Int64Range(1e8, 1e10).Draw(t, "fresh")),
		MaxBody: rapid.Int64Range(1024, 1<<30).Draw(t, "body"), RetryBudget: positive.Draw(t, "budget"),
		Batch: drawBatchPolicy(t, models), Queue: drawQueuePolicy(t), Health: drawHealthPolicy(t), UsageInStreams: &spill, ResumeText: &text, LongShare: positive.Draw(t, "long"),
		OverlapWeight: positive.Draw(t, "overlap") * 100, Temperature: positive.Draw(t, "temperature") * 10,
		Hedge: spec.HedgePolicy{Enabled: spill, After: spec.Duration(time.Second), Quantile: 0.5 + positive.Draw(t, "quantile")*0.4},
	}
	return s
}

func FuzzDecode(f *testing.F) {
	// Short seeds: the fuzzer spends its time on minimizing long ones.
	const zone, service = "zone: {name: a., nameservers: [{name: n., addresses: [1.1.1.1]}]}\n", "services: [{name: a.}]\n"
	const region, model = "regions: [{name: r, place: {lat: 1}, gateways: [{name: g, addresses: [1.1.1.2], url: 'http://b'}]}]\n", "models: [{name: m}]\n"
	for _, rest := range []string{
		"", "aliases: [{name: x, targets: [{model: m, weight: 1}]}]\n", "tenants: [{name: t, class: batch, limits: {concurrency: 1}}]\n",
		"pools: [{name: p, labels: {a: b}, classes: [interactive]}]\n", "steering: {interval: 2s, dead_band: 0.1}\n", "routing: {policy: round_robin, spill: false}\n",
	} {
		f.Add([]byte(zone + service + region + model + rest))
		f.Add([]byte(rest))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := spec.DecodeStandalone("fuzz", text); err == nil {
			if _, err := spec.DecodeStandalone("again", spec.Encode(s)); err != nil {
				t.Fatalf("what was written of a zone alone cannot be read: %v\n%s", err, spec.Encode(s))
			}
		}
		s, err := spec.Decode("fuzz", text)
		if err != nil {
			var e *spec.Error
			if !errors.As(err, &e) || len(e.Mistakes) == 0 {
				t.Fatalf("error is %v, want mistakes", err)
			}
			return
		}
		again, err := spec.Decode("again", spec.Encode(s))
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, spec.Encode(s))
		}
		if diff := cmp.Diff(s, again, equalOptions); diff != "" {
			t.Fatalf("read back (-want +got):\n%s", diff)
		}
	})
}

// mistakes are specs with one mistake each, named after it, and the messages that they produce.
const (
	mistakes    = "testdata/mistakes/*.txtar"
	minMistakes = 190
)

var updateGolden = flag.Bool("update", false, "write the expected messages again")

// TestMistakesMatchGolden decodes specs with one mistake each and compares the printed messages.
func TestMistakesMatchGolden(t *testing.T) {
	testkit.CheckFixtures(t, mistakes, minMistakes, *updateGolden, func(t *testing.T, f testkit.Fixture) string {
		_, err := spec.Decode(f.File, f.Text)
		if err == nil {
			t.Fatal("the spec was taken")
		}
		return err.Error() + "\n"
	})
}

// TestMistakesChangeAValidSpec: the spec that the cases change has no mistake of its own.
func TestMistakesChangeAValidSpec(t *testing.T) {
	text, err := os.ReadFile("testdata/mistakes/base.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := spec.Decode("base.yaml", text); err != nil {
		t.Error(err)
	}
}

// TestMistakesHideKeys searches all printed messages of the specs above for their keys.
func TestMistakesHideKeys(t *testing.T) {
	secret := regexp.MustCompile(`(?i)4242|horse|battery|sesame|hunter2|9f86|sk-live`)
	for _, f := range testkit.ReadFixtures(t, mistakes, minMistakes) {
		if found := secret.FindString(f.Message); found != "" {
			t.Errorf("%s, case %s shows %q", f.Archive, f.Name, found)
		}
	}
}

// A mistake is reported with its position and what to write instead.
func ExampleDecodeStandalone() {
	_, err := spec.DecodeStandalone("spec.yaml", []byte("routing: {policy: round-robin}\n"))
	fmt.Println(err)
	s, err := spec.DecodeStandalone("spec.yaml", []byte("routing: {policy: round_robin}\n"))
	fmt.Println(s.Routing.Policy, err)
	// Output:
	// spec.yaml:1:19: unknown policy "round-robin"
	//     1 | routing: {policy: round-robin}
	//       |                   ^
	//   hint: did you mean "round_robin"?
	// round_robin <nil>
}
