// Package machine measures the resources of a process for the benchmarks: CPU time, memory, and how long it waited
// for a processor. It also pins and prioritises a process. On systems other than Linux its measurements return an error.
package machine
