package snapshot

import "time"

const (
	// RebuildInterval is how often the snapshot is rebuilt without events, so that missing summaries lead to a loss.
	RebuildInterval = 100 * time.Millisecond
	// StartupGrace is how long after its start a node treats a region without a summary as healthy.
	StartupGrace = 3 * time.Second
	// StaleAfter is how long without a leader makes answers stale: they are still served, and reported as stale.
	StaleAfter = 30 * time.Second
	// PeersInterval is how often gateways receive the state of their peer regions.
	PeersInterval = time.Second
	// RTTRefreshInterval is how often measured RTTs are evaluated: paths change slowly, and gateways report rarely.
	RTTRefreshInterval = 2 * time.Second
)
