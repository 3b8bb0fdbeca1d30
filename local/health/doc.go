// Package health decides whether a worker is well, and how much of a pool may be out at once.
//
// # One worker: Breaker
//
//	           probe ok           warm-up ok, no trial owed
//	(new) open ---------> warming -------------------------> closed, share ramps over SlowStart
//	        ^               |  |                                |
//	        |  warm-up fails|  | warm-up ok, trial owed         | a failure that opens
//	        +---------------+  v                                v
//	        |               half-open --- Trials ok ---> closed
//	        |                  | any failure                    |
//	        +<-----------------+<-------------------------------+
//	   open: nothing is sent until the backoff has passed and a probe succeeds
//
// What opens: Failures soft errors in a row, two refused connections, two failed probes, and at once a stall, a failed deep
// probe, a body or a GPU that says the hardware or its memory is gone, and being an outlier of its pool. The backoff doubles
// each time and forgets once a ramp is complete; what tells of broken hardware or memory lasts Quarantine at least. A trial
// is owed by whoever was out for anything but its absence, until it has passed one: a failed warm-up or a probe in between
// does not acquit it. Without WarmUp the step of warming is left out.
//
// Health pages lie both ways. A worker that fails its probes and emits tokens is busy, not dead, and stays. A worker
// whose probes succeed and which emits nothing has stalled, and goes.
//
// # The pool
//
// Soft errors, errors and latency far from the pool's median are doubts. They may take out MaxEjected of a pool and
// never its last worker: beyond that they are more likely the requests' fault or ours. When fewer than Panic of a pool
// take requests, those that are out for a doubt or a stall and pass their probes are used all the same (Relent). So as
// long as one worker answers probes and says nothing of broken hardware, somebody is served; and whatever happened, a
// worker that has become well is closed with its full share after the longest backoff, a trial and a ramp.
//
// The package never probes anybody, never reads a clock and starts no goroutine: it is told what happened and when.
package health
