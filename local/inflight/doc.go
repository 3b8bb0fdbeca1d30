// Package inflight is the ledger of what was dispatched to each worker and is not finished: uncached prefill in tokens,
// reserved KV cache in tokens, and running sequences. A choice reads it first and scraped metrics second, because it is
// exact for this instance and never old.
//
// A request passes through DispatchPrompt, RecordFirstByte and FinishRequest. Each step is idempotent, and an entry of a
// worker that was dropped changes nothing. ObserveScrape compares the ledger with what the engine reports: what exceeds
// it in two consecutive scrapes was sent by others and counts as foreign.
//
// Three things are estimates. The clock credits progress to the oldest prefill (WorkerTotals.BacklogAt). A prefill without
// a first byte makes its worker late (LateSeconds). Prompts that share a prefix hold its KV cache once, as in engines
// with prefix caching (SharedKV).
//
// The package is pure: it has no lock and reads no clock. One writer owns a Ledger.
package inflight
