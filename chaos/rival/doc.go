// Package rival holds the rules of other systems that choose across regions, or by means that local/pick has not, so that
// the lab can compare ours with them: SkyWalker's selective pushing, GORGO's cost, and Prequal's pool of asynchronous probes.
//
// Each is a function, or a small value with one writer, over what its balancer has been told: which replica or region a
// request goes to. Rules among the workers of one zone that users ask for are policies in local/pick.
//
// It never reads a clock, never talks to anybody, and production never imports it.
package rival
