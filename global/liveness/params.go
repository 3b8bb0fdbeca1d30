package liveness

import "time"

const (
	// ReportLifetime is how long a node's report is valid. Reports are sent every 250 ms, so it covers three lost ones.
	// With a smaller value, a lost message makes a reachable region count as lost. With a larger one, a region that all
	// nodes have lost stays in answers that much longer.
	ReportLifetime = time.Second
	// MaxClockOffset bounds the offset of a peer's clock, which may be any number. It is a century, so that sums and
	// differences of offsets are exact.
	MaxClockOffset = 100 * 365 * 24 * time.Hour
)

const (
	// simultaneousLossWindow is the time within which regions that fail for one reason fall silent.
	simultaneousLossWindow = 1500 * time.Millisecond
	// silenceTimeout is the age of the newest summary from which a region counts as lost by silence. A region that is
	// lost sooner has ended its session, which is evidence about the region.
	silenceTimeout = 1250 * time.Millisecond
	// recoveryTime is how long the guard waits for the other regions once this node reaches a region again and there
	// is a leader. A gateway whose session failed dials again within five seconds.
	recoveryTime = 30 * time.Second
)
