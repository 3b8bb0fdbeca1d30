// Package warm decides which model is loaded on which worker: what to load for those who wait, what to let go, which
// worker to wake and which to put to sleep.
//
// # What is loaded
//
// First what somebody waits for and nobody has ready, the longest wait first; then what is below its floor of warm
// replicas; then one more replica of what is ready and so busy that loading takes less time than waiting. A load goes to
// the worker that has room and failed least, takes the least time, holds the fewest models and has the most KV cache
// free. A worker without room first lets the model go that was used the longest ago.
//
// # What is never let go
//
// A model with answers under way or with somebody waiting for it, one whose replicas would fall below its floor, and one
// that was loaded less than Stay ago: a zone with too few places for what is asked of it turns slowly instead of
// loading all day. What the engine cannot let go of by itself (the base model of adapters) stays until its worker is
// put to sleep.
//
// # Bounds
//
// At most PerWorker loads run on a worker and PerZone in the zone. After a failed load the place is left alone for
// Backoff, which doubles up to MaxBackoff; other workers are tried at once. So every model that somebody waits for is
// loaded after finitely many steps, if some worker that is up has room for it or holds something that may go.
//
// Decide changes the Zone that it is given as its own actions will, reads no clock and starts nothing.
package warm
