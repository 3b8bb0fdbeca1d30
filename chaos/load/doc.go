// Package load is an open-loop load generator for OpenAI-style services: requests are sent when they are due, whether
// earlier ones were answered or not, as with real users.
//
// It determines when each request is sent (ArrivalSource: a Poisson process, or the Azure and Mooncake traces), where
// it is sent (fixed URLs, or the answers of given DNS servers, cached for their TTL), and its outcome: LoadReport
// counts every request exactly once, as answered, refused by status and code, cut mid-stream, lost, or abandoned at
// the end. A request is sent elsewhere only when no part of an answer to it was received. Times count from when a
// request was due, so that a slow generator does not improve the results.
//
// It does not slow down for the system under test, does not count a refusal as a fast answer, and does not repeat a
// request whose answer has begun. Memory is bounded: traces are read as they are played, latencies go to fixed
// buckets. The histogram is the package's own, because Prometheus's with buckets as fine takes 80 ns for a value
// instead of 5 and yields no quantiles.
//
// For the lab it names workloads (Workload, OpenWorkload): the public traces, with the rules of their descriptions,
// and generators for workloads without a trace. A Feed hands out their requests in order of virtual time, in open and
// in closed loops, and holds only the requests in progress. A prompt is a list of pieces, not of tokens or blocks:
// block hashes are computed from them where needed (gpu.HashBlocks).
package load
