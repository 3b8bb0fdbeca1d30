// Package dnsload asks a DNS server for one name on behalf of many client subnets, as fast as it answers or at a fixed
// rate, and tells what came back: how soon, how much was never answered, and whether each answer names the right region.
//
// It polls without ever sleeping, from the calling goroutine's thread, so that no server pays for waking it; it takes a core
// for that. It never judges a server: callers know what is too much. At a fixed rate a query's latency counts from when it
// was due, so that nobody's stall is hidden.
package dnsload
