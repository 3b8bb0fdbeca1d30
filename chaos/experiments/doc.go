// Package experiments is the catalogue: what the lab asks of Spillway and of the policies that it is compared with, a file
// for each experiment, with the lines that must hold. `spillway simulate list` shows it, `spillway simulate E5` runs one.
//
// A line that does not hold yet stays as it is and says under open why it does not. An experiment that the simulator cannot
// run yet says under needs what is missing, and never passes.
package experiments
