// Package pick decides which worker serves one request: every policy, the cost model in seconds, the exact ledger of
// what was sent and is not yet finished, the rates and lengths learned from it, and the index of prefixes that workers
// have cached.
//
// A choice is bound late: a worker is a candidate only while it has room for the request (KV cache, sequence slots,
// and a prefill backlog inside the class's target), so that a request that finds no room waits in the queue, where it
// can still go anywhere, and not inside an engine. All policies choose among the same candidates, off the same ledger.
// A worker that recovers or is new takes part under each as far as it is trusted. Where the model is a LoRA adapter,
// workers that hold it stand before those with a free place for it, and these before those that must swap another out;
// predictive alone weighs that in seconds. Nobody is chosen of whom something impossible is believed while there is another.
//
// # Policies
//
// predictive (the default) takes the fewest seconds: the backlog before the request, its own uncached prefill, the wait
// for KV cache, and what it costs the sequences beside it and after it, by rates learned on line. Use it unless you know
// better.
//
// round_robin takes workers in turn. Use it for equal workers and requests that cost about the same, or as a baseline.
//
// weighted_round_robin takes turns by weight, a heavy worker's spread between the others'. Use it for unequal workers
// when you would rather state their speed than have it learned.
//
// random takes anybody. Use it as a baseline, or with very many instances that must not agree.
//
// weighted_random takes anybody by weight. Use it as weighted_round_robin, with very many instances.
//
// power_of_two draws two and takes the one with fewer sequences for its weight. Use it where other routers, unseen, send
// to the same workers: no reading, however old, draws everybody to one.
//
// least_connections takes the fewest sequences. Use it for equal workers and long answers of unlike length.
//
// weighted_least_connections takes the fewest sequences for the weight. Use it for the same on unequal workers.
//
// least_queue takes the fewest requests before their prefill. Use it where prompts are of one length and time to first
// token is all that counts.
//
// least_pending_tokens takes the fewest prompt tokens before the request's first token, cached ones left out. Use it
// where prompts differ widely and workers do not.
//
// least_response_time takes the least peak EWMA of times to first token, times sequences. Use it where workers' speed
// changes for reasons that no metric shows, such as neighbours on the same host.
//
// gpu_utilization takes the least busy GPU. Use it where other work shares the GPUs; a GPU that decodes is busy at any
// batch, so that it tells little of an engine alone.
//
// gpu_aware takes the least composite: 0.4 queue, 0.3 GPU, 0.2 KV cache, 0.1 latency. Use it to move from a router that
// weighs such scores without changing the balance that its users know.
//
// consistent_hash takes the worker that is nearest to the key (session, tenant, header or prefix), unless it holds more
// than 1.25 times its fair share. A worker that leaves moves its own keys only. Use it for state that workers keep by key,
// or with several instances that must agree without talking.
//
// prefix_affinity takes the worker that holds most of the prompt, unless it runs 8 sequences and half as many more than
// the lightest. Use it for many prompts over few long prefixes on equal workers.
//
// sticky_until_saturated keeps to the workers that hold four fifths of the prompt until waiting for them would cost more
// than half of what the request may wait. Use it for agents and long conversations, where a miss is very dear.
//
// prequal draws 16 and takes, of those not hot (more sequences than 84 % of the fleet), the one that was lately fastest
// at its load. Use it on large mixed fleets with antagonists that slow workers at random.
//
// lmetric takes the least product of uncached prompt tokens and sequences. Use it as a good balance of cache and load
// with nothing to learn, where no request's prefix is most of the traffic.
//
// cache_aware takes the worker that holds most of the prompt, if that is three tenths of it, else the one of which least is
// known to be cached, and the fewest sequences while the fleet is 64 sequences and half as many again out of balance. Use it
// to move from SGLang's router without changing where requests go.
//
// overlap_cost takes the least sum of blocks to prefill, times overlap_weight, and blocks held by what runs; temperature
// spreads it. Use it to move from Dynamo's KV router.
//
// score_blend takes the best sum of cached prefix (3), short queue (2) and free KV cache (2). Use it to move from llm-d or
// the Gateway API inference extension with their default scorers.
//
// # What it never does
//
// It never talks to a worker, never reads a clock, starts no goroutine and holds no lock: one writer owns the values,
// which is why the scratch space of a choice lives in them and a choice allocates nothing. It keeps no prompt, only
// hashes of its blocks, seeded by tenant, so that one tenant cannot learn what another has cached.
package pick
