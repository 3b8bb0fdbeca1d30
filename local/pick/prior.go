package pick

import (
	"math"
	"strconv"
	"strings"
)

// gpu is a GPU type's datasheet, with the shares of it that inference engines reach.
type gpu struct {
	name   string
	tflops float64 // dense BF16, as reached by prefill on one GPU
	gbps   float64 // memory bandwidth, GB/s
	memGiB float64 // usable memory
	micros int64   // price of one GPU, millionths of a dollar per hour
}

// gpus are matched by prefix, so the more specific name stands first.
var gpus = [...]gpu{
	{"B200", 1395, 8000, 178, 5_500_000},
	{"H200", 613, 4800, 139.8, 3_800_000},
	{"MI300X", 610, 5300, 190, 3_400_000},
	{"H100", 613, 3350, 79.11, 3_000_000},
	{"A100-40", 193, 1555, 39.4, 1_300_000},
	{"A100", 193, 2039, 79.15, 1_800_000},
	{"L40S", 191, 864, 44.4, 1_200_000},
	{"L4", 54, 300, 22.1, 700_000},
	{"A10", 70, 600, 22.1, 750_000},
	{"T4", 22, 320, 14.6, 350_000},
}

// KnownGPU reports whether a GPU type is one of those whose datasheets are known, with or without the number of GPUs and what
// its maker puts behind the name ("A100-80G", "H100 SXM5").
func KnownGPU(gpuType string) bool {
	name, _ := splitGPU(gpuType)
	name = strings.ToUpper(strings.TrimSpace(name))
	for _, c := range gpus {
		if rest, ok := strings.CutPrefix(name, c.name); ok && (rest == "" || strings.ContainsAny(rest[:1], "- _") || c.name == "A100-40") {
			return true
		}
	}
	return false
}

// GPUNames are the known GPU types.
func GPUNames() []string {
	var out []string
	for _, c := range gpus {
		out = append(out, c.name)
	}
	return out
}

// fallback is a modest GPU for types that are not listed: rates are learned within minutes anyway.
var fallback = gpu{"", 100, 900, 40, 1_000_000}

// Prior is what is assumed of a worker before it has answered anything.
type Prior struct {
	Rates Rates
	// KVTotal is the KV cache in tokens that fits beside the weights.
	KVTotal int64
	// CostMicros is the price per hour in millionths of a dollar, all its GPUs.
	CostMicros int64
}

// PriorFor estimates a worker from its GPU type ("H100", "H100x4" for four in parallel) and the model's name, out of
// which the number of parameters is read ("llama-3.1-8b").
func PriorFor(gpuType, model string) Prior {
	name, n := splitGPU(gpuType)
	g := fallback
	for _, c := range gpus {
		if strings.HasPrefix(strings.ToUpper(name), c.name) {
			g = c
			break
		}
	}
	params := paramsOf(model) // billions
	tp := float64(n)
	mfu := map[int]float64{1: 1, 2: 0.97, 4: 0.84, 8: 0.73}[n]
	if mfu == 0 {
		mfu = 0.8
	}
	weights := 2 * params // GB
	kvBytes := 131072 * math.Pow(params/8, 0.42)
	perToken := 2 * params * 1e9 / (tp * g.tflops * 1e12 * mfu)
	step := weights/(tp*g.gbps*0.72) + 0.0004
	if n > 1 {
		step += 0.002
	}
	kvPerK := kvBytes * 1000 / (tp * g.gbps * 1e9 * 0.60)
	room := (0.9*g.memGiB*tp - weights*1e9/(1<<30) - 1.25*tp) * (1 << 30)
	return Prior{
		Rates: Rates{
			PrefillBase: 0.015 + step, PrefillRate: 1 / (1.05 * perToken), Attention: attention(params),
			StepBase: step, StepSlope: 0.15*perToken + 0.000006, StepContext: kvPerK,
		},
		KVTotal:    int64(max(room/kvBytes, 4096)),
		CostMicros: g.micros * int64(n),
	}
}

// attention is Rates.Attention of a model of so many billion parameters. A token costs 24 L d^2 FLOPs in the matrices of L
// layers as wide as d, and 4 L d for each token before it, at three quarters of the speed; d is 4,096 at 8 billion
// parameters and grows with their cube root.
func attention(params float64) float64 {
	return kilo * 4 / (24 * 4096 * 0.75 * math.Cbrt(params/8))
}

// splitGPU reads "H100x4" as four H100.
func splitGPU(s string) (string, int) {
	i := strings.LastIndexAny(s, "xX")
	if i > 0 && i+1 < len(s) {
		if n, err := strconv.Atoi(s[i+1:]); err == nil && n >= 1 && n <= 64 {
			return s[:i], n
		}
	}
	return s, 1
}

// paramsOf reads "8b" or "0.5B" as billions of parameters out of a model's name; 8 when it says nothing.
func paramsOf(model string) float64 {
	for part := range strings.FieldsFuncSeq(model, func(r rune) bool { return strings.ContainsRune("-_/: ", r) }) {
		num, found := strings.CutSuffix(strings.ToLower(part), "b")
		if !found {
			continue
		}
		if v, err := strconv.ParseFloat(num, 64); err == nil && v >= 0.05 && v <= 2000 {
			return v
		}
	}
	return 8
}
