package spec_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/spec"
)

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
		"infer_models: [llama-8b, llama-8b]": "is there twice", "max_delays: 2ms": "max_delay",
	} {
		if err := with(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
