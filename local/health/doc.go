// Package health decides whether a worker is healthy, and how many workers of a pool may be out at once.
//
// # One worker: Breaker
//
//	           probe ok           warm-up ok, no trial needed
//	(new) open ---------> warming -------------------------> closed, share ramps over SlowStart
//	        ^               |  |                                |
//	        |  warm-up fails|  | warm-up ok, trial needed         | a failure that opens
//	        +---------------+  v                                v
//	        |               half-open --- Trials ok ---> closed
//	        |                  | any failure                    |
//	        +<-----------------+<-------------------------------+
//	   open: nothing is sent until the backoff has passed and a probe succeeds
//
// A breaker opens on Failures consecutive plain error answers to two tenants, on two refused connections, on two
// failed probes, and at once on a stall, a failed deep probe, an answer body or a GPU reading that shows broken
// hardware or exhausted memory, and when the worker is an outlier of its pool. The backoff doubles each time and is
// reset when a ramp completes; for broken hardware or memory it is at least Quarantine. A worker that was out for
// anything but absence must pass a trial first; a failed warm-up or probe in between does not remove that
// requirement. Without Config.WarmUp the state warming is skipped.
//
// A plain error answer (5xx without a sign of a dead engine) may be caused by the request. If only one tenant's
// requests fail, by a run of errors or an error rate, the worker therefore becomes suspected and stays in use: the
// caller sends it a generated request (Verify, Verified), which opens the breaker if it fails and clears the
// suspicion if it passes. Errors of two tenants within 30 s need no verification. An installation with a single
// tenant finds such workers by verification only.
//
// Health pages can be wrong in both directions. A worker that fails its probes but emits tokens is busy, not dead,
// and stays. A worker whose probes succeed but which emits nothing has stalled and is opened.
//
// # The pool
//
// SoftError, ErrorRateOutlier, LatencyOutlier and failures of connections or engines seen by requests are doubts.
// They may eject at most MaxEjected of a pool and never its last worker: more failures than that are more likely
// caused by the requests or by Spillway. When fewer than Panic of a pool accept requests, workers that are out for a
// doubt or a stall and pass their probes are used as well (UsableInPanic). So requests are served as long as one
// worker answers probes and shows no broken hardware; and any worker that has recovered is closed with its full share
// after the longest backoff, a trial and a ramp.
//
// The package sends no probes, reads no clock and starts no goroutine: its caller passes events and times.
package health
