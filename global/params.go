package global

import "time"

const (
	// clockTolerance is the accepted difference between a node's wall clock and the median of the voters' clocks.
	// Beyond it the clock counts as wrong, and timed duties are suspended. NTP keeps hosts within a tenth of a second,
	// and the error of the comparison itself is the transit time of one message, far below a second. With a smaller
	// value, a slow link suspends the duties; with a larger one, they run that much too early or too late.
	clockTolerance = 5 * time.Second
	// clockWait is how long after its start a node waits for a first clock comparison before timed duties run without
	// one. Clocks are exchanged four times a second, over connections that are made within about a second. With a
	// smaller value, a node that starts with a wrong clock and leads at once may act on it. With a larger one, the
	// duties start that much later in a cluster whose other nodes send no clock, such as nodes of an earlier release.
	clockWait = 10 * time.Second
	// clockWarnEvery is the time between two warnings of a leader whose clock is wrong.
	clockWarnEvery = time.Minute
)

const (
	// measuredEvery is how often measured RTTs are persisted, in addition to each change of the agreed state. With a
	// smaller value, the file, which holds the whole spec, is written that much more often. With a larger one, a crash
	// loses more measurements.
	measuredEvery = 5 * time.Minute
	// maxMeasured bounds the persisted RTTs, about 100 bytes each. Each region has an equal share, filled with the
	// RTTs that have the most samples.
	maxMeasured = 8192
)
