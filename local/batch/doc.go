// Package batch decides which small requests for one model become one upstream call, and takes bodies together and
// apart: embeddings, and KServe v2 inferences whose first dimension is a batch.
//
// # Who shares a call
//
// A Part is a request cut into pieces and holes. The holes are what differs from request to request (the inputs; a
// tensor's number of rows and its data; an id); everything else must be equal byte for byte for two requests to share
// a call, so that no parameter of one ever holds for another. A Part is only made of a body whose inputs can be counted
// beyond doubt: rows that were miscounted would end up with a neighbour.
//
// # When a call is made
//
// A Lane holds one model's requests. While fewer calls are under way than the engine takes at a time, nothing waits:
// the oldest group goes at once. While the engine is busy, requests gather until the greatest size, the bound in bytes
// or the delay is reached, or a call ends. Preferred sizes only round a call down, they never make anybody wait longer.
// An engine that turns out to refuse calls of some size gets smaller ones, and is tried with greater ones again later.
//
// # Whose answer is whose
//
// Split hands out slices of the upstream answer: vectors are never decoded or copied. It checks that there is exactly
// one result for each input and gives up otherwise; the caller then asks for each part alone. Usage is shared out by the
// parts' share of the tokens and adds up to what the engine stated.
//
// The package never does I/O, waits, or reads a clock, and never looks at what an input says.
package batch
