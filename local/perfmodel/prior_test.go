package perfmodel

import (
	"testing"
)

func TestKnownGPU(t *testing.T) {
	for name, want := range map[string]bool{
		"H100": true, "h100x4": true, "H100 SXM5": true, "A100-80G": true, "A100-40G": true, "A100-40GBx2": true, "L4": true, "L40S": true, "MI300X": true, "MI300Xx8": true,
		"NVIDIA H100": true, "NVIDIA": false, "Tesla T4": true, "AMD Instinct MI300X": true, "MY H100": false, "A100 40GB": true, "A100-4000": true, // an A100 of some kind
		"H1000": false, "L40": false, "A1000": false, "RTX4090": false, "": false, "x4": false,
	} {
		if got := IsKnownGPU(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

// TestPriorMatchesWholeWords: a type whose name only begins like a known one is unknown, and the more specific name
// wins.
func TestPriorMatchesWholeWords(t *testing.T) {
	for name, want := range map[string]string{
		"L40": "", "L40x2": "unknownx2", "H1000": "", "A1000": "", "T40": "", "H100NVL": "", "H100G": "", "MI300": "", "B2000": "", "A100-400": "A100", "A10G": "A10",
		"h100 sxm5": "H100", "A100_40gb": "A100-40", "A100 80GBx4": "A100x4", "L40S-48G": "L40S",
		"NVIDIA A100-SXM4-40GB": "A100-40", "NVIDIA A100-SXM4-80GB": "A100", "NVIDIA H100 80GB HBM3x8": "H100x8", "NVIDIA A100-PCIE-40GB": "A100-40",
	} {
		if got, want := EstimatePrior(name, "8b"), EstimatePrior(want, "8b"); got != want {
			t.Errorf("%q: %+v, want %+v", name, got, want)
		}
	}
}

func TestPriorsMatchMeasuredModel(t *testing.T) {
	for _, c := range []struct {
		gpu, model           string
		prefill, kv, step    float64 // tokens/s at 2048, tokens, seconds at one sequence
		perSeq               float64
		withinRate, withinKV float64
	}{
		{"T4", "Qwen2.5-3B", 3700, 178e3, 0.027, 0.27e-3, .35, .9},
		{"L4", "Llama-3.1-8B", 3600, 30e3, 0.071, 0.78e-3, .2, .4},
		{"A100-80G", "Llama-3.1-8B", 13000, 450e3, 0.0108, 0.12e-3, .2, .2},
		{"H100", "Llama-3.1-8B", 40900, 450e3, 0.0067, 0.075e-3, .2, .2},
		{"H100x4", "Llama-3.1-70B", 14400, 486e3, 0.0168, 0.06e-3, .25, .2},
		{"H200x2", "Llama-3.1-70B", 8300, 385e3, 0.0225, 0.08e-3, .25, .25},
	} {
		p := EstimatePrior(c.gpu, c.model)
		near := func(what string, got, want, within float64) {
			t.Helper()
			if got < want*(1-within) || got > want*(1+within) {
				t.Errorf("%s %s: %s is %.4g, the model says %.4g", c.gpu, c.model, what, got, want)
			}
		}
		near("prefill rate", p.Rates.PrefillRate, c.prefill, c.withinRate)
		near("KV tokens", float64(p.KVTotal), c.kv, c.withinKV)
		near("step", p.Rates.StepSeconds(1, 1000), c.step, .25)
		near("step per sequence", p.Rates.StepSlope+p.Rates.StepContext, c.perSeq, .9) // KV heads differ and are not in the name
	}
}
