package sim

import (
	"fmt"
	"time"
)

// Result is what came of a run. Every number in it is finite. Marshalled to JSON, it is the same bytes for the same
// scenario and seed.
type Result struct {
	// Policy that decided.
	Policy string `json:"policy"`
	// Seed of the run.
	Seed uint64 `json:"seed"`
	// All counts every request of the run; Measured those that were due after the warm-up. Each request ends once.
	All      Counts `json:"all"`
	Measured Counts `json:"measured"`
	// Window is how long was measured: the duration without the warm-up.
	Window time.Duration `json:"window_ns"`
	// Ended is when the last thing happened.
	Ended time.Duration `json:"ended_ns"`
	// TTFT is the time to first token, TPOT the mean time between the tokens of one answer, ITL every single time between
	// two tokens, E2E the time to the last one, and Queued the time before a worker was chosen: of the measured requests
	// that completed, as their clients see it.
	TTFT   Dist `json:"ttft_s"`
	TPOT   Dist `json:"tpot_s"`
	ITL    Dist `json:"itl_s"`
	E2E    Dist `json:"e2e_s"`
	Queued Dist `json:"queued_s"`
	// Good is how many of the measured requests met the SLO. Attainment is their part of all that were measured, refused,
	// cut and unfinished ones included; Goodput is how many there were per second of the window.
	Good       int64   `json:"good"`
	Attainment float64 `json:"attainment"`
	Goodput    float64 `json:"goodput_per_s"`
	// PromptTokens, CachedTokens and OutputTokens are those of measured requests that completed, as their engines counted
	// them. HitRate is the cached part of the prompts.
	PromptTokens int64   `json:"prompt_tokens"`
	CachedTokens int64   `json:"cached_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	HitRate      float64 `json:"hit_rate"`
	// LongestPrompt is the longest of the measured requests that completed, and KVTokens what all engines' caches hold, in
	// tokens.
	LongestPrompt int64 `json:"longest_prompt_tokens"`
	KVTokens      int64 `json:"kv_cache_tokens"`
	// PrefillRate and OutputRate are the tokens per second of the window that engines prefilled and made, whoever they were for.
	PrefillRate float64 `json:"prefill_tokens_per_s"`
	OutputRate  float64 `json:"output_tokens_per_s"`
	// Believed is the cached part of the prompts as the router believed it when it chose.
	Believed float64 `json:"believed_hit_rate"`
	// Workers, in the fleet's order. Imbalance is the work of the busiest, in busy seconds, over the mean: 1 is even.
	Workers   []WorkerResult `json:"workers"`
	Imbalance float64        `json:"imbalance"`
	// Dollars is what the fleet costs for the window, and PerMillion what a million output tokens cost; 0 when none were made.
	Dollars    float64 `json:"dollars"`
	PerMillion float64 `json:"dollars_per_million_output_tokens"`
	// Series are states at regular times.
	Series []Sample `json:"series"`
	// Seconds are the requests by the second in which they fell due, and Faults what broke, as the scenario has it.
	Seconds []Second `json:"seconds"`
	Faults  []Fault  `json:"faults,omitempty"`
	// Tenants and Regions are the measured requests by who asked and by where they were asked.
	Tenants []Part `json:"tenants,omitempty"`
	Regions []Part `json:"regions,omitempty"`
	// Retried counts second tries elsewhere, Decisions placements, Events what happened in all.
	Retried int64 `json:"retried"`
	// Resumed counts streams that another worker of the zone went on with.
	Resumed int64 `json:"resumed"`
	// Spilled counts requests that a peer region took, Spills from which region (row) to which, in the fleet's order, and
	// SpillsRefused those that a peer sent back. Plans is how many were made, Queries how many DNS questions were asked.
	Spilled       int64     `json:"spilled"`
	Spills        [][]int64 `json:"spills,omitempty"`
	SpillsRefused int64     `json:"spills_refused"`
	Plans         int64     `json:"plans"`
	Queries       int64     `json:"queries"`
	Decisions     int64     `json:"decisions"`
	Events        uint64    `json:"events"`
}

// Counts says what became of requests. Sent is the sum of all others.
type Counts struct {
	Sent       int64 `json:"sent"`
	Completed  int64 `json:"completed"`
	Refused    int64 `json:"refused"`
	Cut        int64 `json:"cut"`
	Unfinished int64 `json:"unfinished"`
	// Reasons are the refusals by their code.
	Reasons map[string]int64 `json:"reasons,omitempty"`
}

// check says whether every request ended once.
func (c *Counts) check() error {
	var reasons int64
	for _, n := range c.Reasons {
		reasons += n
	}
	if c.Sent != c.Completed+c.Refused+c.Cut+c.Unfinished || reasons != c.Refused {
		return fmt.Errorf("the simulator has lost count of requests, which is a bug in it: %+v", *c)
	}
	return nil
}

func (c *Counts) refuse(code string) {
	c.Refused++
	if c.Reasons == nil {
		c.Reasons = map[string]int64{}
	}
	c.Reasons[code]++
}

// WorkerResult is what one worker did, over the whole run.
type WorkerResult struct {
	Region string `json:"region"`
	Zone   string `json:"zone"`
	Name   string `json:"name"`
	GPU    string `json:"gpu"`
	// Requests that it was sent; Prompt, Cached and Output tokens as its engine counted them.
	Requests int64  `json:"requests"`
	Prompt   uint64 `json:"prompt_tokens"`
	Cached   uint64 `json:"cached_tokens"`
	Output   uint64 `json:"output_tokens"`
	// Busy is how long its engine was in a step, in seconds.
	Busy        float64 `json:"busy_s"`
	Preemptions uint64  `json:"preemptions"`
}

// Sample is the state of the fleet at one time.
type Sample struct {
	// At is when, in seconds from the start. What follows counts since the sample before.
	At        float64 `json:"at_s"`
	Sent      int64   `json:"sent"`
	Completed int64   `json:"completed"`
	Refused   int64   `json:"refused"`
	Good      int64   `json:"good"`
	Output    uint64  `json:"output_tokens"`
	// Waiting are the requests in the zones' queues, Running those at workers, EngineWaiting those of them that wait
	// inside an engine, and KV the used part of all KV cache, now.
	Waiting       int     `json:"waiting"`
	Running       int     `json:"running"`
	EngineWaiting int     `json:"engine_waiting"`
	KV            float64 `json:"kv"`
	// Tenants are what each has had until now, in their order, where there are several.
	Tenants []Service `json:"tenants,omitempty"`
}

// Part is a part of the measured requests.
type Part struct {
	Name   string `json:"name"`
	Counts Counts `json:"counts"`
	Good   int64  `json:"good"`
	Tokens int64  `json:"tokens"` // of the prompts and answers that completed
	TTFT   Dist   `json:"ttft_s"`
	TPOT   Dist   `json:"tpot_s"`
	E2E    Dist   `json:"e2e_s"`
}

// ratio is a/b, and 0 when there is no b.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}
