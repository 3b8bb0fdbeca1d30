// Package pick chooses the worker for one request. It has all policies and the cost model in seconds. What was
// dispatched and is not finished is in package inflight, the learned rates and answer lengths are in package perfmodel,
// the index of cached prefixes is in package prefix.
//
// ChooseWorker picks among the workers of a WorkerView for a PlacementQuery and returns a Choice.
// A placement has the request and the scratch space of one choice: screening finds the candidates (screen.go, room.go),
// filters reduce them (overshare.go, screen.go), and the policy's function picks one (policies_turns.go, policies_load.go,
// policies_cache.go; predictive in cost.go). Behavioural constants are in params.go.
//
// A worker is a candidate only while it has room for the request: KV cache, sequence slots, and a prefill backlog
// inside the class's target. A request without a candidate waits in the queue, where it can still go to any worker, and
// not inside an engine. All policies choose among the same candidates and read the same ledger. A new or recovering
// worker takes part under each policy in proportion to its share. For a LoRA adapter, workers that have it loaded are
// preferred to those with a free slot, and these to those that must evict another adapter; predictive alone weighs this
// in seconds. Workers with invalid learned parameters (NaN, infinite, negative, or a prefill rate of zero) are used only
// when no other is eligible.
//
// The package has no network access, clock, goroutine or lock. One writer owns the values, so the scratch space of a
// choice is inside them and a choice allocates nothing. It never keeps a prompt, only hashes of its blocks, seeded by
// tenant, so that one tenant cannot learn what another has cached.
//
// # Policies
//
// predictive (the default) picks the least predicted seconds: the backlog before the request, its own uncached prefill,
// the wait for KV cache, and the delay that it causes running sequences and later requests, by rates learned online.
// Use it unless there is a reason for another.
//
// round_robin picks workers in turn. Use it for equal workers and requests of about the same cost, or as a baseline.
//
// weighted_round_robin takes turns by weight and interleaves a heavy worker's turns with the others'. Use it for unequal
// workers when you would rather state their speed than have it learned.
//
// random picks any worker. Use it as a baseline, or with very many instances that must not synchronize.
//
// weighted_random picks any worker by weight. Use it as weighted_round_robin, with very many instances.
//
// power_of_two draws two workers and picks the one with fewer sequences for its weight. Use it where other routers send
// to the same workers: even an old reading does not direct all requests to one worker.
//
// least_connections picks the fewest sequences. Use it for equal workers and long answers of different length.
//
// weighted_least_connections picks the fewest sequences for the weight. Use it for the same on unequal workers.
//
// least_queue picks the fewest requests waiting for prefill. Use it where prompts have one length and only time to first
// token matters.
//
// least_pending_tokens picks the fewest uncached prompt tokens before the request's first token. Use it where prompts
// differ widely and workers do not.
//
// least_response_time picks the least product of the peak EWMA of times to first token and sequences. Use it where
// workers' speed changes for reasons that no metric shows, such as neighbours on the same host.
//
// gpu_utilization picks the least busy GPU. Use it where other work shares the GPUs. A GPU that decodes is busy with any
// batch, so this says little about an engine alone.
//
// gpu_aware picks the least composite: 0.4 queue, 0.3 GPU, 0.2 KV cache, 0.1 latency. Use it to move from a router with
// such scores without changing the balance that its users know.
//
// consistent_hash picks the worker of the key (session, tenant, header or prefix), unless it has more than 1.25 times
// its fair share of sequences. A worker that leaves moves only its own keys. Use it for state that workers keep by key,
// or with several instances that must agree without communication.
//
// prefix_affinity picks the worker that holds most of the prompt, unless it has 8 more sequences and more than 1.5 times as
// many as the lightest. Use it for many prompts over few long prefixes on equal workers.
//
// sticky_until_saturated stays with the workers that hold four fifths of the prompt until waiting for them would cost
// more than half of what the request may wait. Use it for agents and long conversations, where a miss is very expensive.
//
// prequal draws 16 workers and picks, of those not hot (more sequences than 84 % of the fleet), the one that was
// recently fastest at its load. Use it on large mixed fleets where other work slows workers at random.
//
// lmetric picks the least product of uncached prompt tokens and sequences. Use it as a good balance of cache and load
// without learned rates, where no single prefix is most of the traffic.
//
// cache_aware picks the worker that holds most of the prompt if that is three tenths of it, else the one with the
// fewest blocks in the index, and the fewest sequences while the fleet is out of balance by more than 64 sequences and a
// factor of 1.5. Use it to move from SGLang's router without changing where requests go.
//
// overlap_cost picks the least sum of blocks to prefill, times overlap_weight, and blocks held by running sequences;
// temperature randomizes it. Use it to move from Dynamo's KV router.
//
// score_blend picks the best sum of cached prefix (3), short queue (2) and free KV cache (2). Use it to move from llm-d or
// the Gateway API inference extension with their default scorers.
package pick
