// Package machine measures the resources of a process for the benchmarks: CPU time, memory, and how long it waited
// for a processor. On systems other than Linux its functions return an error.
package machine
