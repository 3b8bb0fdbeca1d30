package gpu

import "math"

// minBlocks is the smallest cache with which an engine starts: 2,048 tokens.
const minBlocks = 128

// gpuHardware is one kind of GPU, from its data sheet.
type gpuHardware struct {
	name           string
	memGiB         float64 // usable memory
	bandwidthTBps  float64 // memory bandwidth, TB/s
	tflops         float64 // dense BF16 or FP16, TFLOP/s
	sustainedShare float64 // fraction of tflops that small cards sustain
	largeCard      bool    // engine defaults of the large cards
}

// modelArch is the architecture of one model.
type modelArch struct {
	name                            string
	layers, heads, kvHeads, headDim int
	paramsB                         float64 // all weights, billions
	embeddingB                      float64 // one embedding matrix, billions
	tiedEmbedding                   bool    // the embedding is also the output head
	maxContext                      int     // longest prompt plus output, tokens
}

func allHardware() []gpuHardware {
	return []gpuHardware{
		{"T4", 14.6, 0.320, 65, 0.55, false},
		{"L4", 22.1, 0.300, 121, 0.72, false},
		{"L40S", 44.4, 0.864, 362, 0.85, false},
		{"A100-80G", 79.15, 2.039, 312, 1, false},
		{"H100", 79.11, 3.35, 989, 1, true},
		{"H200", 139.8, 4.8, 989, 1, true},
		{"B200", 178, 8.0, 2250, 1, true},
	}
}

func allModelArchs() []modelArch {
	return []modelArch{
		{"Qwen2.5-3B", 36, 16, 2, 128, 3.086, 0.3112, true, 32768},
		{"Qwen2.5-7B", 28, 28, 4, 128, 7.616, 0.5450, false, 32768},
		{"Llama-2-7B", 32, 32, 32, 128, 6.738, 0.1311, false, 4096},
		{"Llama-3.1-8B", 32, 32, 8, 128, 8.030, 0.5253, false, 131072},
		{"Mistral-Nemo-12B", 40, 32, 8, 128, 12.248, 0.6711, false, 131072},
		{"Qwen3-32B", 64, 64, 8, 128, 32.762, 0.7779, false, 40960},
		{"Yi-34B", 60, 56, 8, 128, 34.389, 0.4588, false, 4096},
		{"Llama-3.1-70B", 80, 64, 8, 128, 70.554, 1.0507, false, 131072},
	}
}

func findHardware(canonical string) (gpuHardware, bool) {
	for _, h := range allHardware() {
		if canonicalGPU(h.name) == canonical {
			return h, true
		}
	}
	return gpuHardware{}, false
}

func findModelArch(canonical string) (modelArch, bool) {
	for _, a := range allModelArchs() {
		if canonicalModel(a.name) == canonical {
			return a, true
		}
	}
	return modelArch{}, false
}

func hardwareNames() []string {
	var names []string
	for _, h := range allHardware() {
		names = append(names, h.name)
	}
	return names
}

func modelArchNames() []string {
	var names []string
	for _, a := range allModelArchs() {
		names = append(names, a.name)
	}
	return names
}

// deriveProfile applies the formulas of step times and cache sizes to data sheets.
func deriveProfile(hw gpuHardware, a modelArch, tp int) WorkerProfile {
	gpus, flops := float64(tp), hw.tflops*1e12*hw.sustainedShare
	read := (a.paramsB - a.embeddingB) * 2e9 // a step reads all weights except the input embedding
	matmul := (a.paramsB - 2*a.embeddingB) * 1e9
	if a.tiedEmbedding {
		read, matmul = a.paramsB*2e9, (a.paramsB-a.embeddingB)*1e9
	}
	base := read/(gpus*hw.bandwidthTBps*1e12*0.72)*1e3 + 0.4
	if tp > 1 {
		base += float64(2*a.layers) * 0.012
	}
	kv := 2 * a.layers * a.kvHeads * a.headDim * 2
	weights := a.paramsB * 2e9 / (1 << 30)
	room := (0.9*hw.memGiB*gpus - weights - 1.25*gpus) * (1 << 30)
	return WorkerProfile{
		GPU: hw.name, Model: a.name, TP: tp,
		WeightsGiB:  roundTo(weights, 1),
		BaseMS:      roundTo(base, 2),
		TokenUS:     roundTo(2*matmul/(gpus*flops*prefillUtilization(tp))*1e6, 1),
		AttentionUS: roundTo(float64(4*a.layers*a.heads*a.headDim)/(gpus*flops*0.45)*1e9, 2),
		ContextUS:   roundTo(float64(kv)*1e3/(gpus*hw.bandwidthTBps*1e12*0.60)*1e6, 2),
		SequenceUS:  6,
		KVBytes:     kv,
		Blocks:      max(0, int(math.Floor(room/float64(kv*BlockTokens)))),
	}
}

// prefillUtilization is the fraction of peak arithmetic that a prefill reaches.
func prefillUtilization(tp int) float64 {
	switch tp {
	case 1:
		return 0.62
	case 2:
		return 0.60
	case 4:
		return 0.52
	}
	return 0.45
}
