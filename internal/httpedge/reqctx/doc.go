// Package reqctx provides contexts for objects that are created for every request. A Context behaves like a
// context of the standard library. It can be embedded in another struct, so it needs no allocation of its own.
// An EndHook ends one Context with another, without a map, channel or goroutine. The package never starts a
// goroutine and never changes the result of context.Cause.
package reqctx
