// Package liveness decides which regions are reachable, from this node's own capacity summaries and from the reports of
// the other global nodes.
//
// Every node sends a PeerReport on the gateways that it reaches to all others, and PeerReports keeps the newest one of
// each. Votes joins the reports: a region stays in a node's answers while any node reaches it, and it is dead, which
// excludes it from plans, once a majority of the voters does not reach it. IsolationGuard distinguishes an unreachable
// region from this node's own loss of connectivity.
//
// The package is pure: the caller passes the time and sends and receives the reports.
package liveness
