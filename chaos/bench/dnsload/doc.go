// Package dnsload queries a DNS server for one name with many client subnets, as fast as it answers or at a fixed
// rate, and reports latency, lost queries, and whether each answer names the right region.
//
// It polls without sleeping, on the calling goroutine's thread, so that no server pays for wake-ups; it occupies a
// core. It does not judge a server: callers have the bounds. At a fixed rate a query's latency counts from when it
// was due, so that stalls are visible.
package dnsload
