// Package drill reads drill files and judges runs of them. A drill states what will happen when something breaks, breaks
// it, and compares.
//
// # Parts
//
//	DrillFile   a drill as its file states it: ParseFile, FormatFile, and the catalogue in drills/
//	EventLog    what every observer of a run recorded, merged by time, with a hash chain
//	Machine     a run as a state machine: it takes now and events, and returns what to inject, renew, clear and verify
//	Ladder      the recovery time in steps, from the fault to normal
//	Invariants  I-1 to I-32, each a function over the log
//	Judge       the verdicts on hypothesis, clearing and machine, from the log alone
//	Report      all of that as JSON, Markdown or one HTML page
//
// The package reads no clock and opens no socket, so that a stored log can be judged again. Package virtual runs a drill
// in the simulator, package live on a fleet of processes. DESIGN.md gives the reasons.
package drill
