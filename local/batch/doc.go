// Package batch decides which small requests for one model become one upstream call. It merges their bodies and splits the
// answer: embeddings, and KServe v2 inferences whose first dimension is a batch. Main types: RequestPart (one request),
// Batcher (the waiting requests of a model), Call, PartAnswer.
//
// Two requests share a call only if their bodies are equal byte for byte outside the variable spans (inputs, a tensor's
// number of rows and its data, an id), so that no parameter of one applies to another. A body becomes a RequestPart only if
// its inputs can be counted reliably: a wrong count would give a client another client's results.
//
// While fewer calls are under way than the engine takes at a time, the oldest group goes at once. Otherwise requests gather
// until MaxSize, MaxBytes or MaxDelay is reached, or a call ends. Preferred sizes only round a call down and delay nothing.
// If an engine refuses calls of some size, smaller ones are sent, and larger ones are tried again later.
//
// SplitAnswer returns slices of the upstream answer without decoding or copying vectors. It requires exactly one result for
// each input, and otherwise fails; the caller then sends each part alone. Usage is divided by weight and adds up to what the
// engine reported. The package never does I/O, never waits or reads a clock, and never interprets an input.
package batch
