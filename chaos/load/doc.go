// Package load is an open-loop load generator for OpenAI-style services: requests leave when their time has come,
// whether earlier ones were answered or not, as users do.
//
// It decides when which request leaves (Source: a Poisson process, or the Azure and Mooncake traces), where it goes
// (fixed URLs, or the answers of given DNS servers, cached for as long as they say), and what came of it: Report counts
// every request exactly once, as answered, refused by status and code, cut mid-stream, lost, or abandoned at the end. A
// request is sent elsewhere only when nothing of an answer to it was received. Times count from when a request was due, so that
// a generator that falls behind does not flatter what it measures.
//
// It never slows down for the system under test, never counts a refusal as a fast answer, and never repeats a request
// that has begun to be answered. Memory is bounded: traces are read as they are played, latencies go to fixed buckets.
//
// For the lab it names workloads (Workload, Open): the public traces, with the rules that their descriptions give, and
// generators of what has no trace. A Feed hands out their requests in order of virtual time, in open and in closed loops,
// and holds no more than what is under way. A prompt is a list of pieces, not of tokens or blocks: hashes of blocks follow
// from them where somebody needs some (gpu.Hashes).
package load
