package gpu

// EngineLimits bounds an engine. Zero fields take the engine's own defaults.
type EngineLimits struct {
	MaxBatchedTokens int // tokens in one step
	MaxSeqs          int // sequences that run at a time
	MaxModelLen      int // prompt plus output of one request, tokens
	MaxWaiting       int // requests that may wait
}

// withDefaults fills in the defaults of an engine's server for this hardware and model.
func (l EngineLimits) withDefaults(p *WorkerProfile) EngineLimits {
	tokens, seqs := 2048, 256
	if hw, ok := findHardware(canonicalGPU(p.GPU)); ok && hw.largeCard {
		tokens, seqs = 8192, 1024
	}
	length := 32768
	if a, ok := findModelArch(canonicalModel(p.Model)); ok {
		length = a.maxContext
	}
	l.MaxBatchedTokens = orDefault(l.MaxBatchedTokens, tokens)
	l.MaxSeqs = min(orDefault(l.MaxSeqs, seqs), l.MaxBatchedTokens)
	l.MaxModelLen = min(orDefault(l.MaxModelLen, length), p.KVTokens())
	l.MaxWaiting = orDefault(l.MaxWaiting, 4096)
	return l
}

func orDefault(v, def int) int {
	if v > 0 {
		return v
	}
	return def
}
