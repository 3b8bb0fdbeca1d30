package gpu

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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

// calibrationTable returns the calibrated pairs of GPU and model, BF16 weights, from measurements on real engines
// where available and from the data sheet elsewhere (T4, L4, L40S and B200: within 30 %).
func calibrationTable() []WorkerProfile {
	return []WorkerProfile{
		{GPU: "T4", Model: "Qwen2.5-3B", TP: 1, WeightsGiB: 5.7, BaseMS: 27.19, TokenUS: 250.4, AttentionUS: 18.33, ContextUS: 192.0, SequenceUS: 6, KVBytes: 36864, Blocks: 11181},
		{GPU: "L4", Model: "Llama-3.1-8B", TP: 1, WeightsGiB: 15.0, BaseMS: 69.89, TokenUS: 258.4, AttentionUS: 13.37, ContextUS: 728.18, SequenceUS: 6, KVBytes: 131072, Blocks: 1885},
		{GPU: "L4", Model: "Qwen2.5-7B", TP: 1, WeightsGiB: 14.2, BaseMS: 65.87, TokenUS: 241.6, AttentionUS: 10.24, ContextUS: 318.58, SequenceUS: 6, KVBytes: 57344, Blocks: 5214},
		{GPU: "L40S", Model: "Llama-3.1-8B", TP: 1, WeightsGiB: 15.0, BaseMS: 24.53, TokenUS: 73.2, AttentionUS: 3.79, ContextUS: 252.84, SequenceUS: 6, KVBytes: 131072, Blocks: 12161},
		{GPU: "A100-80G", Model: "Llama-3.1-8B", TP: 1, WeightsGiB: 15.0, BaseMS: 10.62, TokenUS: 72.2, AttentionUS: 3.73, ContextUS: 107.14, SequenceUS: 6, KVBytes: 131072, Blocks: 28174},
		{GPU: "A100-80G", Model: "Qwen2.5-7B", TP: 1, WeightsGiB: 14.2, BaseMS: 10.03, TokenUS: 67.5, AttentionUS: 2.86, ContextUS: 46.87, SequenceUS: 6, KVBytes: 57344, Blocks: 65302},
		{GPU: "A100-80G", Model: "Llama-3.1-70B", TP: 4, WeightsGiB: 131.4, BaseMS: 25.99, TokenUS: 211.0, AttentionUS: 4.67, ContextUS: 66.96, SequenceUS: 6, KVBytes: 327680, Blocks: 30418},
		{GPU: "H100", Model: "Llama-3.1-8B", TP: 1, WeightsGiB: 15.0, BaseMS: 6.62, TokenUS: 22.8, AttentionUS: 1.18, ContextUS: 65.21, SequenceUS: 6, KVBytes: 131072, Blocks: 28155},
		{GPU: "H100", Model: "Qwen2.5-7B", TP: 1, WeightsGiB: 14.2, BaseMS: 6.26, TokenUS: 21.3, AttentionUS: 0.9, ContextUS: 28.53, SequenceUS: 6, KVBytes: 57344, Blocks: 65260},
		{GPU: "H100", Model: "Qwen3-32B", TP: 2, WeightsGiB: 61.0, BaseMS: 15.2, TokenUS: 52.6, AttentionUS: 2.35, ContextUS: 65.21, SequenceUS: 6, KVBytes: 262144, Blocks: 20192},
		{GPU: "H100", Model: "Llama-3.1-70B", TP: 4, WeightsGiB: 131.4, BaseMS: 16.73, TokenUS: 66.5, AttentionUS: 1.47, ContextUS: 40.76, SequenceUS: 6, KVBytes: 327680, Blocks: 30388},
		{GPU: "H100", Model: "Llama-3.1-70B", TP: 8, WeightsGiB: 131.4, BaseMS: 9.52, TokenUS: 38.4, AttentionUS: 0.74, ContextUS: 20.38, SequenceUS: 6, KVBytes: 327680, Blocks: 87690},
		{GPU: "H200", Model: "Llama-3.1-8B", TP: 1, WeightsGiB: 15.0, BaseMS: 4.74, TokenUS: 22.8, AttentionUS: 1.18, ContextUS: 45.51, SequenceUS: 6, KVBytes: 131072, Blocks: 56121},
		{GPU: "H200", Model: "Llama-3.1-70B", TP: 2, WeightsGiB: 131.4, BaseMS: 22.43, TokenUS: 115.3, AttentionUS: 2.94, ContextUS: 56.89, SequenceUS: 6, KVBytes: 327680, Blocks: 24110},
		{GPU: "H200", Model: "Llama-3.1-70B", TP: 4, WeightsGiB: 131.4, BaseMS: 12.38, TokenUS: 66.5, AttentionUS: 1.47, ContextUS: 28.44, SequenceUS: 6, KVBytes: 327680, Blocks: 75134},
		{GPU: "H200", Model: "Qwen3-32B", TP: 2, WeightsGiB: 61.0, BaseMS: 11.19, TokenUS: 52.6, AttentionUS: 2.35, ContextUS: 45.51, SequenceUS: 6, KVBytes: 262144, Blocks: 48157},
		{GPU: "B200", Model: "Llama-3.1-70B", TP: 2, WeightsGiB: 131.4, BaseMS: 14.39, TokenUS: 50.7, AttentionUS: 1.29, ContextUS: 34.13, SequenceUS: 6, KVBytes: 327680, Blocks: 38192},
	}
}

const (
	// startInitSec is the time of an engine's initialization, s: the middle of the measured range.
	startInitSec, startInitCachedSec = 94.0, 34.0
	// startCompileSec is the time to compile and capture graphs, s; the second value with cached compilations.
	startCompileSec, startCompileCachedSec = 96.0, 20.0
	// startSigma is the standard deviation of the logarithm of the sum.
	startSigma = 0.3
)

// ColdStart is the time from a worker's start until it serves: loading its weights at storeGBps, then initialization,
// compilation and graph capture, which are shorter with cached compilations. A nil rng gives the median.
func (p *WorkerProfile) ColdStart(storeGBps float64, compiled bool, rng *rand.Rand) time.Duration {
	s := p.WeightsGiB * (1 << 30) / 1e9 / max(storeGBps, 0.001)
	if compiled {
		s += startInitCachedSec + startCompileCachedSec
	} else {
		s += startInitSec + startCompileSec
	}
	if rng != nil {
		s *= math.Exp(startSigma * rng.NormFloat64())
	}
	return time.Duration(s * float64(time.Second))
}

const (
	// noiseSigma is the standard deviation of a step time's logarithm.
	noiseSigma = 0.03
	// hiccupTime is the length of an occasional pause of the host; hiccupCount of hiccupPeriodSteps steps have one.
	hiccupTime                     = 20 * time.Millisecond
	hiccupCount, hiccupPeriodSteps = 1, 100
	// noiseQuantiles is the number of equal parts of the lognormal distribution.
	noiseQuantiles = 1024
)

// stepNoise is the noise of a host: 3 % lognormal and occasional pauses. A step's noise depends only on its number,
// so that steps can be grouped or recomputed.
type stepNoise struct {
	enabled bool
	seed    uint64
	factors *[noiseQuantiles]float64
}

func newStepNoise(rng *rand.Rand) stepNoise {
	if rng == nil {
		return stepNoise{}
	}
	return stepNoise{enabled: true, seed: rng.Uint64(), factors: lognormalFactors()}
}

// addNoise returns the time of the step with this number, which takes d without noise.
func (n *stepNoise) addNoise(number uint64, d float64) float64 {
	if !n.enabled {
		return d
	}
	x := splitMix64(n.seed + number)
	d *= n.factors[x%noiseQuantiles]
	if (x>>32)*hiccupPeriodSteps>>32 < hiccupCount {
		d += float64(hiccupTime)
	}
	return d
}

var lognormalFactors = sync.OnceValue(func() *[noiseQuantiles]float64 {
	var f [noiseQuantiles]float64
	for i := range f {
		f[i] = math.Exp(noiseSigma * math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/noiseQuantiles-1))
	}
	return &f
})
