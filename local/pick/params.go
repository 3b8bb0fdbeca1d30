package pick

// Behavioural constants, by subject: unit, source, and what changes when they move. Goodput figures are those of
// DESIGN.md, section "Alternatives tried". Constants of a published rule keep the published value, so that who moves
// from that router finds the same behaviour.

// Room.
const (
	// longShareDivisor is the inverse of the part of a worker's KV cache that long requests (inflight.IsLong) may hold
	// together, unless the spec states another. With one half, two long requests leave room for short ones.
	longShareDivisor = 2
	// headroomDivisor is the inverse of the part of the KV cache, and of the requested time per output token, that a
	// tenant above its fair share leaves to others. With less than a fifth, the longest prompts of other tenants do not
	// fit on small GPUs and wait for answers to end (simulator).
	headroomDivisor = 5
	// contendedBacklog is the prefill that keeps an engine busy until it can be sent more, in seconds: a step and its
	// scheduling. More would only wait in the engine, where no request can overtake it. It does not depend on the
	// learned PrefillBase, which includes the delay of the engine's own queue: the two would reinforce each other.
	contendedBacklog = 0.05
	// certainPrompt (4/5) is the part of an estimated prompt length that is certain: an estimate may be 25 % too long.
	// A prompt that might fit must reach the engine, which counts exactly.
	certainPromptNumerator, certainPromptDenominator = 4, 5
	// prefillPassTokens is about what an engine prefills in one pass, in tokens: the default max_num_batched_tokens of
	// vLLM on large GPUs. A request of several sequences holds at most this much KV cache at a time, because each
	// sequence is removed as soon as it is done.
	prefillPassTokens = 8192
	// maxDrainQuota bounds the requests that a draining worker may catch up on after it had no room.
	maxDrainQuota = 8
	// tpotHeadroom is the part of the requested time per output token that a batch may take when the request joins it.
	// Requests that join later, and prefills, make steps longer.
	tpotHeadroom = 0.9
)

// Cost of policy predictive.
const (
	// kvSoftLimit is the part of a worker's KV cache above which a new request is expected to wait or to cause
	// preemption, because running answers still grow: kv_wait starts there.
	kvSoftLimit = 0.9
	// Seconds to load a LoRA adapter that is not in the GPU's memory: into a free slot, and in place of another.
	adapterLoadSeconds, adapterSwapSeconds = 0.5, 1.5
	// stallWeight weighs a second by which a running answer stalls during a prefill on its worker, or by which the
	// request and other sequences lengthen each other's steps, relative to a second of time to first token (TTFT). An
	// answer of some 200 tokens may take 100 ms for each, ten times what a first token may. It is the middle of the
	// range that was best on the public traces: goodput falls by 1.1 % with 0.03 and by 3.3 % without; the order of
	// policies changes little within a factor of two.
	stallWeight = 0.1
	// backlogWeight weighs a second of the backlog before the prompt, for each running sequence. It is no cost of this
	// choice, because those sequences wait for the backlog anyhow, but a predictor: more prompts tend to arrive where a
	// backlog is. Without it goodput falls by 0.4 %, agents on mixed GPUs by 2.6 %.
	backlogWeight = 0.03
	// A worker is nearly as good as the best if its cost exceeds the best by at most nearTieSeconds or nearTiePart of
	// it. One of those is drawn at random: otherwise every instance that reads the same numbers would use equal workers
	// in the same order.
	nearTieSeconds, nearTiePart = 0.001, 0.005
	// pruneMargin is the factor by which a bound must exceed the limit, so that the order of floating-point sums
	// decides nothing.
	pruneMargin = 1 + 1e-9
)

// Search in large views (groups.go, search.go). None of these changes a choice, except searchedFrom where near-ties are
// drawn.
const (
	// searchedFrom is the number of workers from which a choice searches groups instead of screening each worker. Below it a
	// choice takes about 3 us either way; the simulator's zones (160 workers at most) draw near-ties as before.
	searchedFrom = 192
	// groupSize is the number of workers in a group. Half as many double the bounds to compute for each choice, twice as
	// many make them looser and the examined groups larger: 1,000 workers are 63 groups.
	groupSize = 16
	// regroupAfter is how many changes of a worker's snapshot pass, on average, before the groups are formed again by speed.
	// Sorting 1,000 workers takes 0.2 ms; learned rates move by percents in minutes.
	regroupAfter = 8
	// markedHolders is how many holders of the longest prefixes have their depths entered in their groups: 3 ns each. All
	// others count as holding as much as the next one.
	markedHolders = 512
	// bestFirstGroups is how many groups are examined in the order of their bounds before the rest is gone through in any
	// order. The best worker is nearly always in one of the first.
	bestFirstGroups = 8
	// A near-tie is found by listing all where at most listedTieGroups groups may have more of them, and else by trying
	// maxTieRanks workers in random order first.
	listedTieGroups, maxTieRanks = 4, 32
)

// Requests of tenants above their fair share (overshare.go).
const (
	// overShareMaxPrefill is the maximum prefill in an engine when a request over fair share joins it, in tokens,
	// including the uncached part of its own prompt, as far as the clock estimates it as not yet done. It is what a
	// step takes in about twice the time it needs to read the weights (peak FLOP/s over bytes/s: 150 to 300 tokens from
	// A100 to H200). A longer prompt must have the engine's prefill to itself and leaves some workers without any
	// prefill (countIdlePrefill).
	overShareMaxPrefill = 450
	// overShareStepFactor is the maximum step time of a worker, as a multiple of a lone sequence's, up to which it
	// admits requests over fair share.
	overShareStepFactor = 2.0
	// overShareHolderStepFactor is the same where the prompt is cached. There the request costs others only step time,
	// and on any other worker a prefill.
	overShareHolderStepFactor = 3.0
	// overShareIdleFactor times the square root of the workers that are up is how many of them long prompts over fair
	// share leave without any prefill, rounded down. Square-root staffing (Halfin and Whitt) asks for the square root
	// of all as spare servers; half of it leaves none below four workers.
	overShareIdleFactor = 0.5
	// overShareMinSeqs is the number of sequences that are always admitted, independent of the estimated step time.
	overShareMinSeqs = 4
)

// Policies by load.
const (
	// relativeTieSlack is the part by which a cost may exceed the best and still be drawn. gpuTieSlack and
	// compositeTieSlack are the same for GPU busyness and composite scores near zero, in their units (0 to 1).
	relativeTieSlack, gpuTieSlack, compositeTieSlack = 0.02, 0.01, 0.005
	// tieBreakWeight makes the number of sequences decide between workers with otherwise equal costs, and only then.
	tieBreakWeight = 1e-6
	// defaultBatch is assumed when an engine does not report how many sequences it runs at once.
	defaultBatch = 64

	// Prequal (arXiv:2312.10172, NSDI'24): workers that are compared, and the quantile of sequences above which one is
	// hot. prequalBins are the bins of the histogram of sequences.
	prequalSamples, prequalHotQuantile, prequalBins = 16, 0.84, 256

	// Weights of gpu_aware's composite, and the sizes at which a component is one half: requests, seconds. Min-max
	// scaling would make a queue of one versus two look like none versus all.
	compositeQueue, compositeGPU, compositeKV, compositeLatency = 0.4, 0.3, 0.2, 0.1
	queueHalfPoint, latencyHalfPoint                            = 4.0, 1.0

	// overlapBlockTokens is the block size in which overlap_cost counts, in tokens: the engines' usual block.
	overlapBlockTokens = 16
	// Weights of score_blend: cached prefix, queue, KV cache. Those of llm-d's default scorers.
	blendPrefix, blendQueue, blendKV = 3.0, 2.0, 2.0
)

// Policies by cache or key.
const (
	// hashLoadFactor is the maximum load of a worker as a multiple of its fair share of sequences (consistent hashing
	// with bounded loads, Mirrokni et al., SODA'18; 1.25 is the default of SGLang's prefix_hash). Above it, the worker's
	// keys go to other workers.
	hashLoadFactor = 1.25

	// prefix_affinity: the minimum cached part of the prompt for it to decide; sequences more than the lightest worker,
	// and ratio to it, that must both be exceeded for the load to override it.
	affinityMinHit, affinityMaxExcess, affinityMaxRatio = 0.3, 8.0, 1.5

	// cache_aware, the thresholds of SGLang's router: minimum cached part of the prompt for the cache to decide;
	// sequences between the heaviest and the lightest worker, and their ratio, that must both be exceeded for the fleet
	// to be out of balance.
	cacheAwareMinHit, cacheAwareMaxExcess, cacheAwareMaxRatio = 0.3, 64.0, 1.5

	// sticky_until_saturated, as in llm-d's filter: minimum cached part of the prompt for a worker to be warm, and
	// maximum extra wait for a warm worker, in seconds, when the request has no bound.
	stickyMinHit, stickyMaxWait = 0.8, 18.0
)

// maxNotedCosts bounds the candidates whose costs are listed in an explanation.
const maxNotedCosts = 32
