package routing

import "time"

// What makes two costs near-equal: a difference of less than 5 ms, or less than a tenth. Predictions are no more
// precise, and a random choice between near-equal candidates keeps gateways with the same view from choosing alike.
const (
	nearEqualSeconds = 0.005
	nearEqualFactor  = 1.1
)

// Rates and lengths assumed where nothing is measured.
const (
	// defaultPrefillRate is the prefill rate of a ready worker that was never measured, in tokens/s: that of a small
	// GPU, so that unknown hardware is tried without being flooded.
	defaultPrefillRate = 3000
	// defaultDecodeRate is its decode rate, in tokens/s.
	defaultDecodeRate = 300
	// assumedRemainingOutput is the average number of tokens that a running sequence still has to generate.
	assumedRemainingOutput = 256
	// defaultDecodeCost is the cost of one output token in prefill tokens before any worker has measured it.
	// minDecodeCost and maxDecodeCost bound the measured value.
	defaultDecodeCost, minDecodeCost, maxDecodeCost = 8.0, 1.0, 32.0
	// defaultPeerRTT is the round-trip time to a peer that was never measured.
	defaultPeerRTT = 150 * time.Millisecond
	// defaultWarmLoadSeconds and defaultColdLoadSeconds are the time to load a model where the zone reports none, in
	// seconds. Zones of the release before do not report it.
	defaultWarmLoadSeconds = 2
	defaultColdLoadSeconds = 30
)

const (
	// decodeLoadShare is the part of a decode step that depends on the sequences and not on the weights, at the load
	// for which decode rates are reported (32 sequences of 1,000 tokens): 0.22 to 0.31 on T4 to B200, less for models
	// on several GPUs.
	decodeLoadShare = 0.25
	// interferenceWeight is the cost of one second by which responses take longer, in seconds of TTFT. It is lower
	// than the weight for choosing a worker (0.1 in local/pick): the state of a zone is older and a mean of its
	// workers, while the cost of sending a request to another region is certain. From 0.02 to 0.1 the regions'
	// throughput hardly differs; TTFTs rise with the weight.
	interferenceWeight = 0.02
	// maxRoomWait bounds the predicted wait for KV cache and sequence slots, in seconds. Beyond it the prediction only
	// means "full".
	maxRoomWait = 60
)

const (
	// maxSessions bounds one generation of the session table, which has two. A session takes about 100 bytes.
	maxSessions = 32 << 10
	// maxRetentionPaths bounds the children whose cache retention is kept; beyond it all estimates are dropped.
	maxRetentionPaths = 4096
	// minExpectedTokens is the least number of expected cached tokens for which a response counts as evidence.
	minExpectedTokens = 64
	// retentionGain is the weight of one response in the estimate of a child's cache retention.
	retentionGain = 0.05
)

const (
	// maxSpillBuckets bounds the pairs of peer and model with a spill budget.
	maxSpillBuckets = 4096
	// After a refusal a peer receives no spills for about minRefusalPause, doubled with each further refusal in a row
	// up to maxRefusalPause.
	minRefusalPause = 500 * time.Millisecond
	maxRefusalPause = 8 * time.Second
	// spillInWaitFactor is how many times the TTFT target of its class a spilled request may wait here. A peer may have
	// spilled it because nothing in its own region can serve it.
	spillInWaitFactor = 10
	// maxTicketMarks bounds the marks of one peer: a directive arrives each second.
	maxTicketMarks = 16
	// summaryDelay is the time until a request that has reached a peer shows in the peer's summary at the global tier.
	summaryDelay = time.Second
)

const (
	// retryFloorPerSec is the number of retries per second that are always allowed, so that a region with few requests
	// can retry.
	retryFloorPerSec = 10.0
	// maxSavedRetries is the number of retries that can be saved up.
	maxSavedRetries = 100.0
)

// RebuildInterval is how often Rebuild is called when nothing has changed, because ages count by the clock.
const RebuildInterval = 100 * time.Millisecond

const (
	// forgetAfter is when an instance that does not come back is removed from the view.
	forgetAfter = 10 * time.Minute
	// suspectFor is how long an endpoint that refused a connection counts as unreachable.
	suspectFor = time.Second
	// suspectForUnreported is that time when the global tier no longer reports the endpoint's region: both may be cut
	// off.
	suspectForUnreported = 30 * time.Second
	// peerUnreachableAfter is the age from which a peer's summary, which comes through the global tier, is no longer
	// used.
	peerUnreachableAfter = 10 * time.Second
	// maxUnreportedPeerAge is how long after the last directive a peer that was healthy by it may still receive
	// requests.
	maxUnreportedPeerAge = 10 * time.Minute
	// globalSilentAfter is the time without a directive after which the global tier counts as silent: it sends one
	// each second.
	globalSilentAfter = 3 * time.Second
	// maxLiveInstances bounds the live instances listed for a zone.
	maxLiveInstances = 64
)

const (
	// unreachableGrace is how long an endpoint must be unreachable before its attempts are cancelled. A gateway that
	// was itself paused finds every summary stale while new ones are still unread.
	unreachableGrace = 200 * time.Millisecond
	// maxStreamSilence is how long a stream may be silent once its endpoint is unreachable. An endpoint that lost only
	// its telemetry goes on sending, and its streams go on.
	maxStreamSilence = 2 * time.Second
	// maxUnreachableWait is how long a request waits for an unreachable endpoint when no other endpoint can serve it.
	maxUnreachableWait = time.Minute
	// maxCancelsPerSweep bounds the cancellations of one sweep, so that the loss of a full zone does not block the
	// router for long.
	maxCancelsPerSweep = 256
)
