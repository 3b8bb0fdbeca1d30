package perfmodel

// Bounds of plausible values, far outside what engines do. They keep sums from overflowing and reject broken input.
const (
	// MaxWorkers bounds the workers of one local instance, and so the slots of the in-flight ledger and the prefix index.
	MaxWorkers = 4096
	// MaxRequestTokens bounds the tokens of a request.
	MaxRequestTokens = 1 << 40
	// MaxScrapedSeqs bounds the sequences that a scrape may show.
	MaxScrapedSeqs = 1 << 20
	// MaxPredictedSeconds bounds a prediction, in seconds.
	MaxPredictedSeconds = 3600
)
