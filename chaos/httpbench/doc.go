// Command httpbench measures what the request path costs: one relayed request, one relayed event of a stream, one open
// stream, and the time that a first token loses on its way. It runs Spillway's real binary, a local alone and a gateway
// with a local behind their mutual TLS, beside HAProxy and nginx where those are installed, in front of the same worker,
// under the same load, in turns.
//
// All servers share one core and have it in turns; worker and clients have the other. CPU time is the kernel's account of
// a process over the work done, refusals and broken answers are counted, and a table says what is compared with what.
// Compare ratios, and only those of one run. It never decides what is fast enough: the bounds are the project's.
package main
