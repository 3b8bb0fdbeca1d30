package perfmodel

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// gpuSpec is a GPU type's datasheet, with the part of its figures that inference engines reach.
type gpuSpec struct {
	name       string
	tflops     float64 // dense BF16, as reached by prefill on one GPU
	gbps       float64 // memory bandwidth, GB/s
	memGiB     float64 // usable memory
	costMicros int64   // price of one GPU, millionths of a dollar per hour
}

// gpuSpecs are matched by findGPUSpec.
var gpuSpecs = [...]gpuSpec{
	{"B200", 1395, 8000, 178, 5_500_000},
	{"H200", 613, 4800, 139.8, 3_800_000},
	{"MI300X", 610, 5300, 190, 3_400_000},
	{"H100", 613, 3350, 79.11, 3_000_000},
	{"A100-40", 193, 1555, 39.4, 1_300_000},
	{"A100", 193, 2039, 79.15, 1_800_000},
	{"L40S", 191, 864, 44.4, 1_200_000},
	{"L4", 54, 300, 22.1, 700_000},
	{"A10", 70, 600, 22.1, 750_000},
	{"A10G", 70, 600, 22.1, 750_000}, // as the A10, whose memory and bandwidth it has
	{"T4", 22, 320, 14.6, 350_000},
}

// IsKnownGPU reports whether a GPU type is one of those whose datasheets are known, with or without the number of GPUs and what
// its maker puts behind the name ("A100-80G", "H100 SXM5").
func IsKnownGPU(gpuType string) bool {
	name, _ := splitGPUCount(gpuType)
	_, ok := findGPUSpec(name)
	return ok
}

// findGPUSpec returns the datasheet of a GPU's name, as its manufacturer, nvidia-smi or a cloud writes it ("NVIDIA
// A100-SXM4-40GB"). Leading manufacturer names are skipped. The next word must be the first of the datasheet's name.
// Its other words, such as a memory size, may follow anywhere and may end in "G" or "GB". The longest match is
// returned.
func findGPUSpec(name string) (g gpuSpec, ok bool) {
	words := splitGPUWords(name)
	for len(words) > 0 && slices.Contains(gpuMakers, words[0]) {
		words = words[1:]
	}
	longest := 0
	for _, c := range gpuSpecs {
		own := splitGPUWords(c.name)
		if len(own) <= longest || len(words) == 0 || own[0] != words[0] {
			continue
		}
		if !slices.ContainsFunc(own[1:], func(size string) bool { return !hasMemorySize(words[1:], size) }) {
			g, ok, longest = c, true, len(own)
		}
	}
	return g, ok
}

// gpuMakers are the manufacturer names that precede a GPU's type in the names that drivers report.
var gpuMakers = []string{"NVIDIA", "TESLA", "AMD", "INSTINCT"}

// hasMemorySize reports whether one of the words is a memory size in GB, with or without its unit.
func hasMemorySize(words []string, size string) bool {
	return slices.ContainsFunc(words, func(w string) bool {
		rest, begins := strings.CutPrefix(w, size)
		return begins && (rest == "" || rest == "G" || rest == "GB")
	})
}

func splitGPUWords(name string) []string {
	return strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool { return r == '-' || r == '_' || r == ' ' })
}

// GPUNames returns the known GPU types.
func GPUNames() []string {
	var out []string
	for _, c := range gpuSpecs {
		out = append(out, c.name)
	}
	return out
}

// fallbackGPU is a modest GPU for types that are not listed. Rates are learned within minutes anyway.
var fallbackGPU = gpuSpec{"", 100, 900, 40, 1_000_000}

// Prior is what is assumed of a worker before its first answer.
type Prior struct {
	Rates Rates
	// KVTotal is the KV cache in tokens that fits in memory next to the weights.
	KVTotal int64
	// CostMicros is the price per hour of all its GPUs, in millionths of a dollar.
	CostMicros int64
}

// EstimatePrior estimates a worker from its GPU type ("H100", "H100x4" for four in parallel) and the model's name,
// which contains the number of parameters ("llama-3.1-8b").
func EstimatePrior(gpuType, model string) Prior {
	name, n := splitGPUCount(gpuType)
	g, known := findGPUSpec(name)
	if !known {
		g = fallbackGPU
	}
	params := parseParamCount(model) // billions
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
			PrefillBase: 0.015 + step, PrefillRate: 1 / (1.05 * perToken), AttentionSlope: estimateAttention(params),
			StepBase: step, StepSlope: 0.15*perToken + 0.000006, StepContext: kvPerK,
		},
		KVTotal:    int64(max(room/kvBytes, 4096)),
		CostMicros: g.costMicros * int64(n),
	}
}

// estimateAttention returns Rates.AttentionSlope of a model of so many billion parameters. A token costs 24 L d² FLOPs
// in the matrices of L layers of width d, and 4 L d for each token before it, at three quarters of the speed. d is
// 4,096 at 8 billion parameters and grows with their cube root.
func estimateAttention(params float64) float64 {
	return kilo * 4 / (24 * 4096 * 0.75 * math.Cbrt(params/8))
}

// splitGPUCount splits "H100x4" into "H100" and 4.
func splitGPUCount(s string) (string, int) {
	i := strings.LastIndexAny(s, "xX")
	if i > 0 && i+1 < len(s) {
		if n, err := strconv.Atoi(s[i+1:]); err == nil && n >= 1 && n <= 64 {
			return s[:i], n
		}
	}
	return s, 1
}

// parseParamCount returns the billions of parameters in a model's name ("8b", "0.5B"); 8 when there are none.
func parseParamCount(model string) float64 {
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
