// Package engine speaks the dialects of inference engines: what a worker's metrics, health and model pages say, in the
// router's own units. One file is one engine; vLLM's is the first, and engines that imitate it are read by it too.
//
// It never decides anything about a worker, never retries, and never believes what cannot be: a value that is not a
// number, negative or absurd is left out, and the last good one stays. Pages are bounded in size.
package engine
