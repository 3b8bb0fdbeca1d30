// Package experiments holds the catalogue E1-E16: for each a file with a question to the simulator and its
// assertions. `spillway simulate list` shows them.
//
// Loads never depend on the result of the tested policy. They are the catalogue's own figures, or fractions of the
// knee of a simple policy (round robin or least requests) that the run measures first; each file states which.
// Assertions are those of the catalogue, and one that fails stays in it.
//
// Unless stated otherwise, signals are as old as in production: workers are scraped once a second. That is coarser
// than the catalogue's 50 to 500 ms, which E3 and E9 vary.
//
// An assertion is never weakened: what cannot be judged yet states what it needs, and does not pass.
package experiments
