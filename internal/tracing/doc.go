// Package tracing exports traces of requests over OTLP.
//
// A tier begins a RequestTrace when a request arrives, adds an AttemptRecord at the end of each attempt, and finishes the
// trace with a RequestRecord when the request has ended. All of them hold times and figures that the tier records anyway.
// Spans are built from them later, on the goroutine of Tracer.Run, and only for traces that are kept: those in the sample,
// and those of failed requests. A request that is not kept costs two random numbers, a traceparent header per attempt and
// one allocation.
//
// Without an endpoint there is no Tracer: a nil *Tracer begins nil traces, and every method of a nil *RequestTrace returns at
// once.
//
// No prompt, key or token is in a record.
package tracing
