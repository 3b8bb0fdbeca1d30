// Command uplinkbench measures the cost of a parent's end of many uplinks: children in one process continuously send
// changes of some of their models, and another process receives them, stores them in a capacity.SummaryTable and
// makes views, as a gateway and a global node do. It prints the parent's CPU time, its memory, and the age of its
// data since the child made it, which includes the transit time; then the same while one more child floods, lies or
// sends garbage. It does not fail for a missed target, except with -strict, because machines differ.
package main
