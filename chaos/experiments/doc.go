// Package experiments holds the catalogue E1-E16: for each a file that asks a question of the simulator and says what must
// hold. `spillway simulate list` shows them.
//
// Loads are never chosen by what the policy on trial does. They are the catalogue's own figures, or parts of the knee of a
// simple policy (round robin or least requests) that the run finds first; each file says which. Lines are the catalogue's, and
// one that does not hold stands.
//
// Signals are as old as in production, where nothing else is said: workers are looked at once a second. That is harsher than
// the catalogue's 50 to 500 ms, which E3 and E9 step through.
//
// It never bends a line: what cannot be judged yet says what it needs, and does not pass.
package experiments
