// Package telemetry contains what the logs and metrics of all tiers have in common: keys of log attributes, a registry with
// the identity of the node, histogram buckets that are comparable across tiers, labels with a bounded number of values,
// earlier names of renamed metrics, and a throttle for repeated log lines.
package telemetry
