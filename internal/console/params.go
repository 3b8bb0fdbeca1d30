package console

import "time"

const (
	// maxViewers bounds the open streams of a process. Further ones are refused with 503. Each holds one connection, one
	// goroutine, and at most one undelivered update for each feed.
	maxViewers = 64
	// tickInterval is how often a stream reports the time at which each feed was last read. The page shows figures as out of
	// date after a few of them are missing.
	tickInterval = time.Second
	// maxStreamAge is how long a stream lasts before the browser has to open it again, so that a removed token loses access.
	maxStreamAge = 10 * time.Minute
	// writeTimeout bounds the delivery of one event to a viewer. A viewer that takes longer is disconnected.
	writeTimeout = 10 * time.Second
	// readTimeout bounds one reading of a feed.
	readTimeout = 5 * time.Second
	// maxBytesPerSecond bounds how much JSON is produced for one feed, in bytes per second on average. A larger answer is
	// read less often: 300 kB/s cost about one percent of a core, from encoding here and at the tiers below.
	maxBytesPerSecond = 300_000
	// maxLoginBytes bounds the body of a login, in bytes. It fits the longest token.
	maxLoginBytes = 4 << 10
	// cookieAge is how long a login lasts.
	cookieAge = 12 * time.Hour
	// retryMS is how long a browser waits before it opens a lost stream again, in milliseconds.
	retryMS = 1000
)
