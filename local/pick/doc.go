// Package pick decides which worker serves one request: every policy, the cost model in seconds, the exact ledger of
// what was sent and is not yet finished, the rates learned from it, and the index of prefixes that workers have cached.
//
// A choice is bound late: a worker is a candidate only while it has room for the request (KV cache, sequence slots,
// and a prefill backlog inside the class's target), so that a request that finds no room waits in the queue, where it
// can still go anywhere, and not inside an engine.
//
// It never talks to a worker, never reads a clock, starts no goroutine and holds no lock: one writer owns the values,
// which is why the scratch space of a choice lives in them and a choice allocates nothing. It keeps no prompt, only
// hashes of its blocks, seeded by tenant, so that one tenant cannot learn what another has cached.
package pick
