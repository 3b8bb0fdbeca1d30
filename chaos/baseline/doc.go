// Package baseline implements the rules of other systems that choose across regions, or by means that local/pick has
// not, so that the lab can compare Spillway with them: SkyWalker's selective pushing, GORGO's cost, and Prequal's
// pool of asynchronous probes.
//
// Each is a function, or a small value with one writer, over the state that its balancer has learned: which replica
// or region a request goes to. Rules among the workers of one zone that users can configure are policies in
// local/pick.
//
// The package reads no clock, does no I/O, and is not imported by production code.
package baseline
