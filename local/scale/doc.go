// Package scale reckons how many replicas of a model a zone should have, for autoscalers.
//
// Demand is what was offered in tokens per second, prefill and decode apart: requests that wait and requests that were
// refused count as much as those that were served, so that shedding never looks like idleness. A replica's capacity is
// its learned prefill and decode rate, and a token of either takes its share of the replica's time:
//
//	use    = prefill / prefill rate + decode / decode rate + backlog / (prefill rate x lead time)
//	needed = use / target
//
// Prefill and decode are those expected after the lead time, which is how long a new replica takes until it serves:
// growth over the last minute is carried on, at most to twice the present demand; decline is not. More replicas are
// asked for at once. Fewer are asked for only when fewer would have been enough for all of the scale-down window, and
// for the first window of an instance's life never fewer than there are: it has not seen the demand that they are for.
//
// The package reads no clock and starts nothing. One writer owns a Meter and a State.
package scale
