// Package lab asks questions of the simulator: an experiment names a fleet, a workload, policies and pass lines; Run plays
// every policy with every seed through chaos/sim, sums up, and says of each line whether it holds and by which figures.
// Plan turns the question round: how many workers a trace needs.
//
// An experiment is a file (Decode) that is judged before it runs: an unknown GPU or policy, a line that cannot be read, and
// an objective that no worker of the fleet can meet are mistakes with a line, a caret and a hint. The catalogue E1-E16 is
// in chaos/experiments.
//
// It never prints a figure that was not measured: a time that more requests missed than its quantile allows, because they
// were refused or broke off, has no value and says so, and a line that rests on it does not hold. It never bends a line, and
// what the simulator cannot do yet never passes. The same experiment with the same seeds has the same report to the last
// byte, however many cores play it.
package lab
