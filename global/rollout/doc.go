// Package rollout judges a staged spec: from the outcomes that gateways report (capacity.OutcomeCounts),
// DecideRollout returns whether the spec is promoted, rolled back, or watched for longer.
//
// A breach must be statistically significant: a share of bad requests is compared with its limit by the lower end of
// its confidence interval, so that two errors out of fifty do not end a rollout whose limit is two in a hundred; in
// between, the rollout continues. Figures are judged for each staged region separately, in total and by service and
// model, so that a broken model does not hide behind one with more requests. Limits such as 1.5x are relative to the
// worse of two baselines: the same region before the rollout, and the other regions now. A day that is bad everywhere
// is therefore not attributed to the spec.
//
// Missing data is neither good nor bad: without a minimum of requests nothing is promoted or rolled back, and time in
// which a staged region does not report does not count towards the window. The package is a pure function of its
// input: time is an argument, it never waits, and it keeps no state.
package rollout
