// Package modelload decides which model is loaded on which worker: what to load, what to unload, which worker to wake and
// which to put to sleep. PlanActions returns the actions for a PlacementState; ForecastAvailability predicts when a model
// that is not loaded will be ready.
//
// Loads start in this order: models that requests wait for and no worker has, the longest wait first; models below their
// minimum of warm replicas; one more replica of a model whose predicted wait exceeds twice its load time. Of the workers with
// room, the one with the fewest failed loads is chosen, then the shortest load time, the fewest loaded models and the most
// free KV cache. A worker without room first unloads its least recently used model.
//
// Invariants: a model is never unloaded while it has open or waiting requests, within MinResidency after its load, or below
// its minimum of replicas. MinResidency keeps a zone with too few slots from loading all day. Models that the engine cannot
// unload (the base model of adapters) stay until their worker sleeps. At most PerWorker loads run on a worker and PerZone in
// the zone. A failed load blocks its slot for Backoff, doubled up to MaxBackoff; other workers are tried at once. So every
// model that requests wait for is loaded after finitely many steps, if some worker has room or can make it. The package reads
// no clock and starts no goroutines.
package modelload
