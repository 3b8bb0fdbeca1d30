// Package health decides whether a worker is well: a breaker fed by answers and probes, a stall watch fed by token
// progress (a worker that accepts and emits nothing is sick, whatever its health page says), quarantine on errors
// that tell of a broken GPU, slow start after recovery, and how much of a pool may be ejected at once.
//
// It never probes anybody, never reads a clock and starts no goroutine: it is told what happened and when.
package health
