// Package gpu is one simulated inference worker: a pure engine that decides what every step of a continuously batching
// server does and how long it takes, and an HTTP stand-in that makes the engine look like vLLM.
//
// # The engine
//
// Engine decides which sequences run, which wait and which are preempted, how many tokens of each a step takes, which
// blocks of key-value cache they hold, what the prefix cache hits, and when the step ends. It is plain single-threaded
// Go: time and randomness are arguments, one step is one event however many tokens it makes, and the same seed gives
// the same run. Step times and cache sizes come from Profile: published measurements where there are some (table.go),
// the same formulas applied to data sheets elsewhere (derive.go).
//
// The cache is kept by runs of blocks, not by blocks: a text is a list of pieces (Piece), and what is cached of each is
// always its beginning, so that a prompt of 100,000 tokens costs as much as one of 100. With FastForward the engine takes
// steps together in which nothing but tokens comes; the times stay the same to the nanosecond. A simulation drives it so:
//
//	s, err := e.Submit(now, Request{Prompt: pieces, PromptTokens: n, OutputTokens: m, Owner: mine})
//	next, busy := e.Next()           // anew after every Submit, Cancel and Advance: it may have become earlier
//	for _, s := range e.Advance(next) { s.Times(); s.Done(); e.Reuse(s) } // first tokens and ends
//	e.Settle(now); e.Gauges()        // what a scrape at now would say
//
// # The stand-in
//
// Server serves /v1/models, /v1/chat/completions, /v1/completions, /v1/messages (Anthropic's), /v1/embeddings, /health,
// /ping, /version, /metrics and /chaos, vLLM's /sleep, /wake_up and /is_sleeping, and with Adapters its /v1/load_lora_adapter
// and /v1/unload_lora_adapter; waking and loading take ColdStart. It never ticks while nothing runs. A prompt's tokens are
// its content's bytes divided by four, rounded up; its prefix is hashed in blocks of 16 tokens. An embedding costs its
// input's prefill and nothing else. An answer is as long as a lognormal draw seeded by the server's seed and the prompt,
// never longer than max_tokens, and exactly max_tokens with "ignore_eos": true. Parameters that ask for something the worker
// cannot do are refused with 400, never ignored. The text is a function of the conversation alone: a request that brings the
// beginning of its own answer along (continue_final_message, or a completion's prompt that ends with it) gets the rest of it,
// token for token.
//
// With Config.KVEvents it publishes what its prefix cache gains and loses as vLLM does, over ZeroMQ, and POST
// /reset_prefix_cache empties the cache.
//
// # Chaos
//
// POST /chaos takes one JSON object and answers the mode now in force; GET /chaos answers it as well.
//
//	{"mode": "ok"}                                      as good as new
//	{"mode": "fail", "status": 500}                     refuses new requests and health probes with this status
//	{"mode": "stall"}                                   accepts everything, emits nothing; /health says 200 all the same
//	{"mode": "slow", "factor": 5}                       every step takes this many times as long
//	{"mode": "oom"}                                     ends what runs with a CUDA out-of-memory error, refuses the rest with it; /health 503
//	{"mode": "leak", "requests": 100, "restart": "10s"} every request leaves memory behind; after so many the process runs
//	                                                    out of it as in oom, is away, and starts anew with an empty cache
//	{"mode": "die_midstream", "after_tokens": 8}        cuts the connection of a stream once it has had this many tokens
//
// Every mode also takes "share" (0..1, default 1: the part of the requests that fail or die_midstream hit) and "for" (a
// duration such as "10s", after which the worker is ok again).
//
// # What it never does
//
// It computes no tokens and keeps no prompt. Production code never imports it.
package gpu
