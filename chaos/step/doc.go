// Package step shows what a step of demand does to a region: clients of one place ask for 0.7 and then for 1.3 times what
// their region can do, and the table says for how long it was over its capacity, how far its load swung past where it
// settled, how steady it is there, what became of requests, and how many clients moved: the measures of the table on
// the stability of DNS feedback that the design rests on.
//
// `make step` does it in virtual time, with a whole planet of real tiers; `spillway load --step` does it to a planet that
// runs (watch.go). Both read their figures off the same kind of series (gauge.go). It never decides where a client goes.
package step
