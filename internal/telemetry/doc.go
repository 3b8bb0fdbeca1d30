// Package telemetry is what every tier's logs and metrics have in common: the keys of log lines, a registry that says
// which node it speaks for, the buckets that make histograms comparable across tiers, and labels that cannot grow
// without bound, and the thinning of lines that trouble would repeat for ever.
//
// It decides how things are called. It never decides what is worth logging or counting.
package telemetry
