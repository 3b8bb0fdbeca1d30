// Command httpbench measures the cost of the request path: one relayed request, one relayed event of a stream, one
// open stream, and the delay of a first token. It runs Spillway's real binary, a local instance alone and a gateway
// with a local instance behind their mutual TLS, next to HAProxy and nginx if those are installed, in front of the
// same worker, under the same load, in turns.
//
// All servers share one core in turns; worker and clients have the other. CPU time is the kernel's accounting of a
// process divided by the work done, refusals and broken answers are counted, and a table lists the comparisons.
// Compare ratios, and only within one run. The bounds are the project's targets.
package main
