package prefix

// SuffixHitRate is the measured part of the prompt after the longest known prefix that is also cached on the workers
// holding that prefix. The index records what was sent; an engine also caches its answers, and the next turn of a
// conversation continues with them. Without this rate, such a turn would look like more work than it is, workers would
// seem faster than they are, and a miss cheaper than it is.
type SuffixHitRate struct {
	rates [2]suffixRate // index 1: only one worker holds the prefix
}

type suffixRate struct {
	rate    float64
	samples int
}

const (
	// suffixMemory is about how many answers count.
	suffixMemory = 100
	// minSuffixTokens is the minimum length of the rest of the prompt for an answer to count, in tokens.
	minSuffixTokens = 32
)

// LearnSuffix updates the rate from an answer to a prompt of so many tokens sent to a holder of its longest known
// prefix: known tokens of it were in the index, cached tokens were reported cached. When less than known was cached,
// the answer says nothing about the rest.
func (o *SuffixHitRate) LearnSuffix(alone bool, known, cached, prompt int64) {
	rest := prompt - known
	if known <= 0 || rest < minSuffixTokens || cached < known-known/10 {
		return
	}
	p := &o.rates[boolIndex(alone)]
	p.samples = min(p.samples+1, suffixMemory)
	p.rate += (max(0, min(float64(cached-known)/float64(rest), 1)) - p.rate) / float64(p.samples)
}

// HitRate returns the part of the rest that is expected to be cached, 0 to 1.
func (o *SuffixHitRate) HitRate(alone bool) float64 {
	if o == nil {
		return 0
	}
	return o.rates[boolIndex(alone)].rate
}

func boolIndex(b bool) int {
	if b {
		return 1
	}
	return 0
}
