// Package stage judges a spec on trial: from what gateways report of their requests (capacity.Outcome) it decides whether
// the spec is promoted, rolled back, or watched for longer.
//
// A breach must be beyond chance: a share of bad requests is compared with its limit by the lower end of its confidence
// interval, so that two errors out of fifty do not end a trial whose limit is two in a hundred; in between, the trial goes
// on. Figures are judged for each region on trial by itself, in all and by service and model: a model that breaks does
// not hide behind one with more requests. Limits such as 1.5x are relative to the worse of two baselines: the same region
// before the trial, and the other regions now. A day that is bad everywhere is so not blamed on the spec.
//
// No data is neither good nor bad: without a minimum of requests nothing is promoted and nothing rolled back, and time in
// which a region on trial is not heard does not count towards the window. It takes the time as an argument and never
// waits, remembers nothing, and knows neither Raft nor where the figures come from.
package stage
