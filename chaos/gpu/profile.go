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

// Times of a request outside the engine's steps.
const (
	// IngestTime is the time from a request's arrival until the engine may schedule it.
	IngestTime = 15 * time.Millisecond
	// FinishTime is the time from the last step until the answer is complete.
	FinishTime = 800 * time.Microsecond
	// PerTokenTime is the API server's time per streamed token. The HTTP server spends it as real work, a simulation
	// adds it.
	PerTokenTime = 46 * time.Microsecond
)

// WorkerProfile is the performance of one model on TP GPUs of one kind, and the size of its cache.
type WorkerProfile struct {
	GPU         string
	Model       string
	TP          int     // tensor parallelism: number of GPUs
	WeightsGiB  float64 // weights over all TP GPUs
	BaseMS      float64 // minimum time of a step, ms: all weights are read once
	TokenUS     float64 // time per token in a compute-bound step, us
	AttentionUS float64 // time per prefilled token and 1,000 tokens of context before it, us
	ContextUS   float64 // time per 1,000 tokens of context of decoding sequences, us
	SequenceUS  float64 // time per decoding sequence, us
	KVBytes     int     // key-value cache per token, bytes over all TP GPUs
	Blocks      int     // blocks of BlockTokens tokens that fit
}

// StepLoad is the work of one step.
type StepLoad struct {
	PrefillTokens  int     // prompt tokens
	PrefillContext float64 // mean tokens before each of them in its own sequence
	Decodes        int     // sequences that generate one token each
	DecodeContext  int     // sum of their context tokens
	HostTokens     int     // tokens whose keys and values are loaded from host memory
}

// StepTime returns how long a step with this load takes, without noise.
func (p *WorkerProfile) StepTime(l StepLoad) time.Duration {
	prompts, sequences := p.fixedCost(&l)
	return p.stepDuration(prompts, sequences, l.DecodeContext)
}

// fixedCost is the part of a step's time that is constant while sequences only decode, ms: for computation, and for
// the number of sequences.
func (p *WorkerProfile) fixedCost(l *StepLoad) (computed, sequences float64) {
	compute := float64(l.PrefillTokens+l.Decodes) * p.TokenUS / 1e3
	computed = max(p.BaseMS, compute) + 0.15*min(p.BaseMS, compute) +
		float64(l.PrefillTokens)*l.PrefillContext/1e3*p.AttentionUS/1e3
	return computed, float64(l.Decodes) * p.SequenceUS / 1e3
}

// stepDuration is a step's time with the given context of decoding sequences, in tokens.
func (p *WorkerProfile) stepDuration(computed, sequences float64, context int) time.Duration {
	ms := computed + float64(context)/1e3*p.ContextUS/1e3 + sequences
	return time.Duration(ms * float64(time.Millisecond))
}

// KVTokens returns how many tokens the key-value cache holds.
func (p *WorkerProfile) KVTokens() int { return p.Blocks * BlockTokens }

// PrefillRate returns the tokens per second of back-to-back prefill in chunks of this many tokens.
func (p *WorkerProfile) PrefillRate(chunk int) float64 {
	return float64(chunk) / p.StepTime(StepLoad{PrefillTokens: chunk, PrefillContext: float64(chunk) / 2}).Seconds()
}

// CalibratedProfiles returns the calibrated profiles.
func CalibratedProfiles() []WorkerProfile { return calibrationTable() }

// LookupProfile finds the profile of a model on a kind of GPU. Names are matched without regard to case, an
// organization ("meta-llama/") or an "-Instruct" suffix; tp 0 means the smallest that holds the model. A pair without
// calibration is derived from data sheets. The error lists the known names.
func LookupProfile(gpu, model string, tp int) (WorkerProfile, error) {
	g, m := canonicalGPU(gpu), canonicalModel(model)
	rows := slices.DeleteFunc(calibrationTable(), func(p WorkerProfile) bool {
		return canonicalGPU(p.GPU) != g || canonicalModel(p.Model) != m || (tp != 0 && p.TP != tp)
	})
	if len(rows) > 0 {
		return slices.MinFunc(rows, func(a, b WorkerProfile) int { return a.TP - b.TP }), nil
	}
	hw, ok := findHardware(g)
	if !ok {
		return WorkerProfile{}, fmt.Errorf("unknown GPU %q: use one of %s", gpu, strings.Join(hardwareNames(), ", "))
	}
	arch, ok := findModelArch(m)
	if !ok {
		return WorkerProfile{}, fmt.Errorf("unknown model %q: use one of %s", model, strings.Join(modelArchNames(), ", "))
	}
	return deriveSmallest(hw, arch, tp)
}

func deriveSmallest(hw gpuHardware, arch modelArch, tp int) (WorkerProfile, error) {
	for _, n := range []int{1, 2, 4, 8} {
		if tp != 0 && tp != n {
			continue
		}
		if p := deriveProfile(hw, arch, n); p.Blocks >= minBlocks {
			return p, nil
		}
	}
	if tp == 0 {
		return WorkerProfile{}, fmt.Errorf("%s does not fit on eight %s: use a larger GPU", arch.name, hw.name)
	}
	return WorkerProfile{}, fmt.Errorf("%s does not run on %d x %s: use tp 1, 2, 4 or 8 with enough memory", arch.name, tp, hw.name)
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

func roundTo(x float64, digits int) float64 {
	f := math.Pow10(digits)
	return math.Round(x*f) / f
}
