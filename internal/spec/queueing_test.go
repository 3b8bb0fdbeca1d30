package spec_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

func drawQueuePolicy(t *rapid.T) spec.QueuePolicy {
	part := rapid.Float64Range(0.01, 1)
	weight := rapid.Float64Range(0.001, 1000)
	return spec.QueuePolicy{
		MaxRequests: rapid.IntRange(1, 1<<20).Draw(t, "requests"), MaxBytes: rapid.Int64Range(1<<16, 1<<36).Draw(t, "bytes"),
		ClassShares: spec.QueueShares{Interactive: part.Draw(t, "i"), Standard: part.Draw(t, "s"), Batch: part.Draw(t, "b")},
		Weights:     spec.QueueWeights{Interactive: weight.Draw(t, "wi"), Standard: weight.Draw(t, "ws"), Batch: weight.Draw(t, "wb")},
		TenantShare: part.Draw(t, "tenant"), Aging: spec.Duration(rapid.Int64Range(1e7, 1e12).Draw(t, "aging")), ShedFrom: part.Draw(t, "shed"),
	}
}

func drawHealthPolicy(t *rapid.T) spec.HealthPolicy {
	part := rapid.Float64Range(0.01, 1)
	long := func(name string) spec.Duration {
		return spec.Duration(rapid.Int64Range(int64(time.Second), int64(time.Minute)).Draw(t, name))
	}
	warm := rapid.Bool().Draw(t, "warm")
	return spec.HealthPolicy{
		Failures: rapid.IntRange(1, 1000).Draw(t, "failures"), Backoff: long("backoff"), MaxBackoff: spec.Duration(time.Hour),
		Quarantine: long("quarantine"), SlowStart: long("slow"), Stall: long("stall"), WarmUp: &warm, MaxEjected: part.Draw(t, "ejected"),
		Panic: part.Draw(t, "panic"), ErrorRate: part.Draw(t, "errors"), SlowFactor: rapid.Float64Range(1.5, 1000).Draw(t, "factor"),
		DrainDeadline: long("drain"), DeepProbe: long("deep"),
	}
}

func TestQueueAndHealthMistakesHavePaths(t *testing.T) {
	const head = `
zone: {name: a., nameservers: [{name: n., addresses: [1.1.1.1]}]}
services: [{name: a.}]
regions: [{name: r, place: {lat: 1}, gateways: [{name: g, addresses: [1.1.1.2], url: 'http://b'}]}]
models: [{name: m}]
`
	if _, err := spec.Decode("ok.yaml", []byte(head)); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"queue: {max_requests: 0}":                  "max_requests cannot be zero",
		"queue: {max_bytes: 10}":                    "write a whole number from 65536",
		"queue: {tenant_share: 1.5}":                "tenant_share 1.5 is not a share",
		"queue: {class_shares: {batch: 0}}":         "batch cannot be zero",
		"queue: {weights: {interactive: -1}}":       "the interactive weight -1",
		"queue: {aging: 0s}":                        "aging cannot be zero",
		"queue: {weigths: {batch: 1}}":              "weights",
		"health: {backoff: 2m, max_backoff: 1m}":    "max_backoff 1m is out of range",
		"health: {deep_probe: 10ms}":                "deep_probe 10ms is out of range",
		"long_share: 1.5":                           "long_share 1.5 is not a share",
		"overlap_weight: -1":                        "overlap_weight -1 is out of range",
		"overlap_weight: 0":                         "overlap_weight cannot be zero",
		"temperature: 11":                           "temperature 11 is out of range",
		"hedge: {after: 1ms}":                       "after 1ms is out of range",
		"hedge: {quantile: 1}":                      "quantile 1 is out of range",
		"health: {stall: 10}":                       "10s",
		"health: {panic: 2}":                        "panic 2 is not a share",
		"health: {slow_factor: 1}":                  "slow_factor 1 is out of range",
		"health: {warm_up: maybe}":                  "warm_up",
		"health: {failures: 0, drain_deadline: 0s}": "drain_deadline cannot be zero",
	} {
		_, err := spec.Decode("bad.yaml", []byte(head+"routing: {"+text+"}\n"))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "bad.yaml:6:") {
			t.Errorf("%s: error is %v, want one at line 6 with %q", text, err, want)
		}
	}
}

// drawBatchPolicy draws a valid batch policy.
func drawBatchPolicy(t *rapid.T, models []string) spec.BatchPolicy {
	enabled := rapid.Bool().Draw(t, "merge")
	b := spec.BatchPolicy{
		Enabled: &enabled, MaxSize: rapid.IntRange(1, 4096).Draw(t, "max_size"), MaxDelay: spec.Duration(rapid.Int64Range(1e5, 1e9).Draw(t, "max_delay")),
		MaxBytes: rapid.Int64Range(1<<10, 64<<20).Draw(t, "max_bytes"), AcrossTenants: rapid.Bool().Draw(t, "across"), InferModels: models,
	}
	if rapid.Bool().Draw(t, "prefers") {
		b.PreferredSizes = []int{b.MaxSize}
	}
	return b
}

func TestBatchDefaultsAndMistakes(t *testing.T) {
	valid, err := os.ReadFile("testdata/valid.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s, err := spec.Decode("spec", valid)
	if err != nil {
		t.Fatal(err)
	}
	b := &s.Routing.Batch
	if !*b.Enabled || b.MaxSize != 64 || time.Duration(b.MaxDelay) != 5*time.Millisecond || b.MaxBytes != 1<<20 || b.AcrossTenants || len(b.InferModels) != 0 {
		t.Fatalf("defaults are %+v", b)
	}
	with := func(batch string) error {
		_, err := spec.Decode("spec", []byte(string(valid)+"  batch: {"+batch+"}\n"))
		return err
	}
	for _, ok := range []string{"enabled: false", "max_size: 32, preferred_sizes: [8, 16]", "infer_models: [llama-8b]", "across_tenants: true, max_delay: 1ms, max_bytes: 4096"} {
		if err := with(ok); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for text, want := range map[string]string{
		"max_size: 5000": "max_size 5000 is out of range", "max_size: -1": "out of range", "preferred_sizes: [8, 4]": "out of order", "preferred_sizes: [128]": "max_size (64)",
		"max_delay: 2s": "max_delay 2s is out of range", "max_bytes: 10": "max_bytes 10 is out of range", "infer_models: [resnet]": `unknown model "resnet"`,
		"infer_models: [llama-8b, llama-8b]": "duplicate", "max_delays: 2ms": "max_delay",
	} {
		if err := with(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// sizedSpec returns a spec with the given number of regions, and of gateways in each.
func sizedSpec(regions, gateways int) string {
	var b strings.Builder
	b.WriteString("zone: {name: api.example., nameservers: [{name: ns1.api.example., addresses: [192.0.2.1]}]}\nservices: [{name: chat.api.example.}]\nmodels: [{name: m}]\nregions:\n")
	for r := range regions {
		fmt.Fprintf(&b, "  - name: r%d\n    place: {city: X, lat: 1, lon: 1}\n    gateways:\n", r)
		for g := range gateways {
			fmt.Fprintf(&b, "      - {name: g%d, addresses: [10.%d.%d.%d], url: \"http://g%d.r%d.example\"}\n", g, r/256, r%256, g+1, g, r)
		}
	}
	return b.String()
}

func TestRegionsAndGatewaysAreBounded(t *testing.T) {
	for _, at := range [][2]int{{1, spec.MaxGateways}, {spec.MaxRegions, 1}} {
		if _, err := spec.Decode("spec", []byte(sizedSpec(at[0], at[1]))); err != nil {
			t.Errorf("%d regions, %d gateways: %v", at[0], at[1], err)
		}
	}
	for at, want := range map[[2]int]string{
		{1, spec.MaxGateways + 1}: `region "r0" has 65 gateways, at most 64 are possible`,
		{spec.MaxRegions + 1, 1}:  "there are 257 regions, at most 256 can be steered",
	} {
		if _, err := spec.Decode("spec", []byte(sizedSpec(at[0], at[1]))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d regions, %d gateways: %v", at[0], at[1], err)
		}
	}
}
