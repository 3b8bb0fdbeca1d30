// Package gpu is one simulated inference worker: a pure engine that decides what every step of a continuously
// batching server does and how long it takes, and an HTTP server that makes the engine look like vLLM.
//
// # The engine
//
// Engine decides which sequences run, wait or are preempted, how many tokens of each a step takes, which blocks of
// key-value cache they hold, the prefix cache hits, and when the step ends. It is single-threaded: time and
// randomness are arguments, one step is one event with any number of tokens, and the same seed gives the same run.
// Step times and cache sizes come from WorkerProfile: published measurements where available (profile.go), the same
// formulas applied to data sheets elsewhere (derive.go).
//
// The cache is stored by runs of blocks, not by blocks: a text is a list of pieces (Piece), and the cached part of
// each is always its beginning, so that a prompt of 100,000 tokens costs as much as one of 100. With FastForward the
// engine groups steps in which sequences only generate tokens; the times stay equal to the nanosecond. A simulation
// drives it like this:
//
//	s, err := e.Submit(now, EngineRequest{Prompt: pieces, PromptTokens: n, OutputTokens: m, Owner: mine})
//	next, busy := e.NextEvent()      // again after every Submit, Cancel and AdvanceTo: it may be earlier
//	for _, s := range e.AdvanceTo(next) { s.EventTimes(); s.IsDone(); e.RecycleSequence(s) } // first tokens and ends
//	e.SettleTo(now); e.Gauges()      // the state at now, as for a scrape
//
// # The server
//
// Server serves /v1/models, /v1/chat/completions, /v1/completions, /v1/messages (Anthropic's), /v1/embeddings, /health,
// /ping, /version, /metrics and /chaos, vLLM's /sleep, /wake_up and /is_sleeping, and with MaxAdapters its
// /v1/load_lora_adapter and /v1/unload_lora_adapter; waking and loading take ColdStart. It has no timer while nothing
// runs. A prompt's tokens are its content's bytes divided by four, rounded up; its prefix is hashed in blocks of 16
// tokens. An embedding costs only the prefill of its input. The length of an answer is a lognormal draw seeded by the
// server's seed and the prompt, at most max_tokens, and exactly max_tokens with "ignore_eos": true. Parameters that
// the worker does not support are refused with 400, never ignored. The text is a function of the conversation alone:
// a request that contains the beginning of its own answer (continue_final_message, or a completion's prompt that ends
// with it) gets the rest of it, token for token.
//
// With Config.KVEvents it publishes the changes of its prefix cache as vLLM does, over ZeroMQ, and POST
// /reset_prefix_cache empties the cache.
//
// The metrics page is written without the Prometheus client, because each worker of a process is scraped every second:
// its histograms take 45 us and one allocation, where the client takes 150 us and 506.
//
// # Chaos
//
// POST /chaos takes one JSON object and answers with the mode in force, as does GET /chaos.
//
//	{"mode": "ok"}                                      normal operation
//	{"mode": "fail", "status": 500}                     refuses new requests and health probes with this status
//	{"mode": "stall"}                                   accepts everything, emits nothing; /health still returns 200
//	{"mode": "slow", "factor": 5}                       multiplies every step time by this factor
//	{"mode": "oom"}                                     fails running requests with a CUDA out-of-memory error, refuses others with it; /health 503
//	{"mode": "leak", "requests": 100, "restart": "10s"} every request leaks memory; after this number the process runs
//	                                                    out of memory as in oom, and restarts with an empty cache
//	{"mode": "die_midstream", "after_tokens": 8}        cuts the connection of a stream after this many tokens
//
//	{"mode": "refuse"}                                  resets every connection; running streams continue
//	{"mode": "hang"}                                    answers a request with its headers and nothing else
//	{"mode": "trickle", "interval": "1s"}               sends one token of each stream in this time
//	{"mode": "wrong"}                                   generates other text than the model, as with wrong weights
//	{"mode": "lie_metrics"}                             reports an idle engine, also when it is busy
//	{"mode": "lie_health", "healthy": true, "status": 500}  reports that it is healthy and fails every request; with false
//	                                                    it serves, and /health returns 503
//	{"mode": "poison", "text": "X", "restart": "10s"}   a request whose body contains the text ends the process
//	{"mode": "cold_start", "restart": "10s"}            ends the process; it listens again after this time, with an empty cache
//	{"mode": "key_revoked"}                             accepts no API key, except for the health page
//	{"mode": "lose_events", "share": 0.1}               loses this fraction of the batches of cache events
//
// Every mode also takes "share" (0..1, default 1: the fraction of requests that fail or die_midstream affect), "for" (a
// duration such as "10s", after which the worker is ok again) and "lease" (a name, for who clears it).
//
// # Limits
//
// It computes no tokens and stores no prompt. Production code does not import it.
package gpu
