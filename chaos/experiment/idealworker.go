package experiment

import (
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
)

// idealBlockTokens is the block size of the ideal worker's cache. Engines cache blocks of 16, so a prompt has up to
// 63 fewer cached tokens here than it could have: milliseconds.
const idealBlockTokens = 64

// sharedSlowdown is the factor of a request's time on a worker that is half busy with other requests: 1/(1 - 0.5). An
// objective that only an idle worker can just meet is meaningless for a loaded fleet.
const sharedSlowdown = 2

// idealWorker is a worker with one request at a time and an unbounded cache that contains all earlier prompts.
type idealWorker struct {
	profile      gpu.WorkerProfile
	slowdown     float64
	stepTokens   int // tokens per step
	cachedBlocks map[uint64]struct{}
	blocks       []uint64
}

// Values of CapacitySearch.Of.
const (
	attainmentOfAll      = "all"
	attainmentOfPossible = "possible"
)

// attainmentCache caches the attainment that searches require at each load, so that it is computed once for all
// policies.
type attainmentCache struct {
	mu    sync.Mutex
	found map[attainmentKey]float64
}

type attainmentKey struct {
	caseIndex int // index of the case
	vary      string
	value     float64
	seed      uint64
}

// serveTimes is a request's time to first token, mean time between tokens, and time to the last token.
func (a *idealWorker) serveTimes(r *load.Request) (ttft, tpot, e2e time.Duration) {
	ttft = gpu.IngestTime + a.prefillTime(a.cachedTokens(r), r.PromptTokens)
	if more := r.Output - 1; more > 0 {
		tpot = a.stepTime(gpu.StepLoad{Decodes: 1, DecodeContext: r.PromptTokens + r.Output/2})
		e2e = time.Duration(more) * tpot
	}
	return ttft, tpot, ttft + e2e + gpu.FinishTime
}

// cachedTokens is the cached part of a prompt, which is then added with its answer. The last token never counts.
func (a *idealWorker) cachedTokens(r *load.Request) int {
	text := r.Prompt
	if r.Answer != 0 {
		text = append(text[:len(text):len(text)], load.Piece{ID: r.Answer, Tokens: r.Output})
	}
	a.blocks = gpu.HashBlocks(a.blocks[:0], text, idealBlockTokens)
	n := 0
	for n < len(a.blocks) {
		if _, ok := a.cachedBlocks[a.blocks[n]]; !ok {
			break
		}
		n++
	}
	for _, b := range a.blocks[n:] {
		a.cachedBlocks[b] = struct{}{}
	}
	return max(min(n*idealBlockTokens, r.PromptTokens-1), 0)
}

// prefillTime is the time of the prompt's tokens in a range, in steps of the engine's step size.
func (a *idealWorker) prefillTime(from, to int) (sum time.Duration) {
	for from < to {
		n := min(a.stepTokens, to-from)
		sum += a.stepTime(gpu.StepLoad{PrefillTokens: n, PrefillContext: float64(from) + float64(n)/2})
		from += n
	}
	return sum
}

func (a *idealWorker) stepTime(l gpu.StepLoad) time.Duration {
	return time.Duration(float64(a.profile.StepTime(l)) * a.slowdown)
}
