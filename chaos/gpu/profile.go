package gpu

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// BlockTokens is the size of one block of key-value cache, in tokens.
const BlockTokens = 16

// What a request costs outside the engine's steps.
const (
	// Ingest is the time from a request's arrival until the engine may schedule it.
	Ingest = 15 * time.Millisecond
	// Finish is the time from the last step until the answer is complete.
	Finish = 800 * time.Microsecond
	// PerToken is the API server's time per streamed token. The stand-in pays it in real work, a simulation adds it.
	PerToken = 46 * time.Microsecond
)

// Profile says how fast one model runs on TP GPUs of one kind, and how much it can hold.
type Profile struct {
	GPU         string
	Model       string
	TP          int     // tensor parallelism: GPUs that work as one
	WeightsGiB  float64 // weights over all TP GPUs
	BaseMS      float64 // least time of a step, ms: weights are read once
	TokenUS     float64 // time per token in a compute-bound step, us
	AttentionUS float64 // time per prefilled token and 1,000 tokens of context before it, us
	ContextUS   float64 // time per 1,000 tokens of context of decoding sequences, us
	SequenceUS  float64 // time per decoding sequence, us
	KVBytes     int     // key-value cache per token, bytes over all TP GPUs
	Blocks      int     // blocks of BlockTokens tokens that fit
}

// Load is what one step has to do.
type Load struct {
	Prefill        int     // prompt tokens
	PrefillContext float64 // mean tokens before each of them in its own sequence
	Decodes        int     // sequences that make one token each
	DecodeContext  int     // sum of their context tokens
	Loaded         int     // tokens whose keys and values come out of the host's memory
}

// StepTime returns how long a step with this load takes, without noise.
func (p *Profile) StepTime(l Load) time.Duration {
	prompts, sequences := p.fixed(&l)
	return p.with(prompts, sequences, l.DecodeContext)
}

// fixed is what does not change from step to step of sequences that only decode, ms: for what is computed, and for their
// number.
func (p *Profile) fixed(l *Load) (computed, sequences float64) {
	compute := float64(l.Prefill+l.Decodes) * p.TokenUS / 1e3
	computed = max(p.BaseMS, compute) + 0.15*min(p.BaseMS, compute) +
		float64(l.Prefill)*l.PrefillContext/1e3*p.AttentionUS/1e3
	return computed, float64(l.Decodes) * p.SequenceUS / 1e3
}

// with is a step's time with so many tokens of decoding sequences' context.
func (p *Profile) with(computed, sequences float64, context int) time.Duration {
	ms := computed + float64(context)/1e3*p.ContextUS/1e3 + sequences
	return time.Duration(ms * float64(time.Millisecond))
}

// KVTokens returns how many tokens the key-value cache holds.
func (p *Profile) KVTokens() int { return p.Blocks * BlockTokens }

// PrefillRate returns the tokens per second of back-to-back prefill in chunks of this many tokens.
func (p *Profile) PrefillRate(chunk int) float64 {
	return float64(chunk) / p.StepTime(Load{Prefill: chunk, PrefillContext: float64(chunk) / 2}).Seconds()
}

// Profiles returns the calibrated profiles.
func Profiles() []Profile { return table() }

// Lookup finds the profile of a model on a kind of GPU. Names are matched without regard to case, an organisation
// ("meta-llama/") or an "-Instruct" suffix; tp 0 means the smallest that holds the model. A pair without calibration is
// derived from data sheets. The error says which names are known.
func Lookup(gpu, model string, tp int) (Profile, error) {
	g, m := canonicalGPU(gpu), canonicalModel(model)
	rows := slices.DeleteFunc(table(), func(p Profile) bool {
		return canonicalGPU(p.GPU) != g || canonicalModel(p.Model) != m || (tp != 0 && p.TP != tp)
	})
	if len(rows) > 0 {
		return slices.MinFunc(rows, func(a, b Profile) int { return a.TP - b.TP }), nil
	}
	hw, ok := findHardware(g)
	if !ok {
		return Profile{}, fmt.Errorf("unknown GPU %q: use one of %s", gpu, strings.Join(hardwareNames(), ", "))
	}
	arch, ok := findArch(m)
	if !ok {
		return Profile{}, fmt.Errorf("unknown model %q: use one of %s", model, strings.Join(archNames(), ", "))
	}
	return deriveSmallest(hw, arch, tp)
}

func deriveSmallest(hw hardware, arch arch, tp int) (Profile, error) {
	for _, n := range []int{1, 2, 4, 8} {
		if tp != 0 && tp != n {
			continue
		}
		if p := derive(hw, arch, n); p.Blocks >= minBlocks {
			return p, nil
		}
	}
	if tp == 0 {
		return Profile{}, fmt.Errorf("%s does not fit on eight %s: use a larger GPU", arch.name, hw.name)
	}
	return Profile{}, fmt.Errorf("%s does not run on %d x %s: use tp 1, 2, 4 or 8 with enough memory", arch.name, tp, hw.name)
}

func canonicalGPU(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	if strings.HasPrefix(s, "a100") {
		return "a100-80g"
	}
	return s
}

func canonicalModel(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	if i := strings.LastIndexByte(s, '/'); i >= 0 {
		s = s[i+1:]
	}
	return strings.TrimSuffix(s, "-instruct")
}

func round(x float64, digits int) float64 {
	f := math.Pow10(digits)
	return math.Round(x*f) / f
}
