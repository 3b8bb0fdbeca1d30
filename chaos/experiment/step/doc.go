// Package step measures the effect of a demand step on a region: its clients' demand rises from 0.7 to 1.3 times its
// capacity, and the table shows how long it was over capacity, the overshoot of its load, the variation after
// settling, the outcomes of requests, and how many clients moved: the measures of the table on the stability of DNS
// feedback on which the design is based.
//
// `make step` runs it in virtual time, with a whole fleet of real tiers; `spillway load --step` runs it on a running fleet
// (resolverwatch.go). Both compute their figures from the same kind of series (measure.go). Clients go where the fleet sends them.
package step
