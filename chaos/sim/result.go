package sim

import (
	"fmt"
	"time"
)

// RunResult is the result of a run. Every number in it is finite. Its JSON is the same bytes for the same scenario
// and seed.
type RunResult struct {
	// Policy that was used.
	Policy string `json:"policy"`
	// Seed of the run.
	Seed uint64 `json:"seed"`
	// All counts every request of the run; Measured those due after the warm-up. Each request ends once.
	All      RequestCounts `json:"all"`
	Measured RequestCounts `json:"measured"`
	// Window is the measured time: the duration without the warm-up.
	Window time.Duration `json:"window_ns"`
	// EndedAt is the time of the last event.
	EndedAt time.Duration `json:"ended_ns"`
	// TTFT is the time to first token, TPOT the mean time between the tokens of one answer, ITL each time between two
	// tokens, E2E the time to the last one, and Queued the time before a worker was chosen: of the measured requests
	// that completed, as seen by their clients.
	TTFT      Distribution `json:"ttft_s"`
	TPOT      Distribution `json:"tpot_s"`
	ITL       Distribution `json:"itl_s"`
	E2E       Distribution `json:"e2e_s"`
	QueueTime Distribution `json:"queued_s"`
	// Good is how many of the measured requests met the SLO. Attainment is their fraction of all that were measured,
	// including refused, cut and unfinished ones; Goodput is their number per second of the window.
	Good       int64   `json:"good"`
	Attainment float64 `json:"attainment"`
	Goodput    float64 `json:"goodput_per_s"`
	// PromptTokens, CachedTokens and OutputTokens are those of measured requests that completed, as counted by their
	// engines. HitRate is the cached fraction of the prompts.
	PromptTokens int64   `json:"prompt_tokens"`
	CachedTokens int64   `json:"cached_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	HitRate      float64 `json:"hit_rate"`
	// LongestPrompt is the longest of the measured requests that completed, and KVTokens the capacity of all engines'
	// caches, in tokens.
	LongestPrompt int64 `json:"longest_prompt_tokens"`
	KVTokens      int64 `json:"kv_cache_tokens"`
	// PrefillRate and OutputRate are the tokens per second of the window that engines prefilled and generated, for
	// all requests.
	PrefillRate float64 `json:"prefill_tokens_per_s"`
	OutputRate  float64 `json:"output_tokens_per_s"`
	// PredictedHitRate is the cached fraction of the prompts as predicted by the router when it chose.
	PredictedHitRate float64 `json:"predicted_hit_rate"`
	// Workers, in the fleet's order. Imbalance is the busy time of the busiest over the mean: 1 is even.
	Workers   []WorkerResult `json:"workers"`
	Imbalance float64        `json:"imbalance"`
	// Dollars is the cost of the fleet for the window, and DollarsPerMillion that of a million output tokens; 0
	// without output.
	Dollars           float64 `json:"dollars"`
	DollarsPerMillion float64 `json:"dollars_per_million_output_tokens"`
	// Series are samples at regular times.
	Series []FleetSample `json:"series"`
	// PerSecond are the requests by the second in which they were due, and Faults the faults of the scenario.
	PerSecond []SecondCounts `json:"seconds"`
	Faults    []Fault        `json:"faults,omitempty"`
	// Tenants and Regions are the measured requests by tenant and by region of the client.
	Tenants []Breakdown `json:"tenants,omitempty"`
	Regions []Breakdown `json:"regions,omitempty"`
	// Retried counts second attempts elsewhere, Decisions placements, Events all events.
	Retried int64 `json:"retried"`
	// Resumed counts streams that another worker of the zone resumed.
	Resumed int64 `json:"resumed"`
	// Spilled counts requests that a peer region served, Spills from which region (row) to which, in the fleet's
	// order, and SpillsRefused those that a peer returned. Plans is how many were made, Queries the number of DNS
	// queries.
	Spilled       int64     `json:"spilled"`
	Spills        [][]int64 `json:"spills,omitempty"`
	SpillsRefused int64     `json:"spills_refused"`
	Plans         int64     `json:"plans"`
	Queries       int64     `json:"queries"`
	Decisions     int64     `json:"decisions"`
	Events        uint64    `json:"events"`
}

// RequestCounts counts requests by outcome. Sent is the sum of all others.
type RequestCounts struct {
	Sent       int64 `json:"sent"`
	Completed  int64 `json:"completed"`
	Refused    int64 `json:"refused"`
	Cut        int64 `json:"cut"`
	Unfinished int64 `json:"unfinished"`
	// Reasons are the refusals by code.
	Reasons map[string]int64 `json:"reasons,omitempty"`
}

// checkSums reports whether every request ended once.
func (c *RequestCounts) checkSums() error {
	var reasons int64
	for _, n := range c.Reasons {
		reasons += n
	}
	if c.Sent != c.Completed+c.Refused+c.Cut+c.Unfinished || reasons != c.Refused {
		return fmt.Errorf("the simulator has lost count of requests, which is a bug in it: %+v", *c)
	}
	return nil
}

func (c *RequestCounts) addRefusal(code string) {
	c.Refused++
	if c.Reasons == nil {
		c.Reasons = map[string]int64{}
	}
	c.Reasons[code]++
}

// WorkerResult is the result of one worker, over the whole run.
type WorkerResult struct {
	Region string `json:"region"`
	Zone   string `json:"zone"`
	Name   string `json:"name"`
	GPU    string `json:"gpu"`
	// Requests that it was sent; Prompt, Cached and Output tokens as counted by its engine.
	Requests     int64  `json:"requests"`
	PromptTokens uint64 `json:"prompt_tokens"`
	CachedTokens uint64 `json:"cached_tokens"`
	OutputTokens uint64 `json:"output_tokens"`
	// BusySeconds is the time of its engine in steps, in seconds.
	BusySeconds float64 `json:"busy_s"`
	Preemptions uint64  `json:"preemptions"`
}

// FleetSample is the state of the fleet at one time.
type FleetSample struct {
	// At is the time in seconds from the start. The following fields count since the previous sample.
	At           float64 `json:"at_s"`
	Sent         int64   `json:"sent"`
	Completed    int64   `json:"completed"`
	Refused      int64   `json:"refused"`
	Good         int64   `json:"good"`
	OutputTokens uint64  `json:"output_tokens"`
	// Waiting are the requests in the zones' queues, Running those at workers, EngineWaiting those of them that wait
	// inside an engine, and KV the used fraction of all KV cache, now.
	Waiting       int     `json:"waiting"`
	Running       int     `json:"running"`
	EngineWaiting int     `json:"engine_waiting"`
	KVUsage       float64 `json:"kv"`
	// Tenants are the totals of each tenant so far, in their order, if there are several.
	Tenants []TenantService `json:"tenants,omitempty"`
}

// Breakdown is a subset of the measured requests.
type Breakdown struct {
	Name   string        `json:"name"`
	Counts RequestCounts `json:"counts"`
	Good   int64         `json:"good"`
	Tokens int64         `json:"tokens"` // of prompts and answers that completed
	TTFT   Distribution  `json:"ttft_s"`
	TPOT   Distribution  `json:"tpot_s"`
	E2E    Distribution  `json:"e2e_s"`
}

// safeRatio is a/b, and 0 if b is 0.
func safeRatio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// SecondCounts counts the requests that were due in one second of the run, including the warm-up.
type SecondCounts struct {
	Sent int32 `json:"sent"`
	Good int32 `json:"good"` // met the SLO, at any end of their answers
}
