package notify

import "time"

const (
	// maxWaiting bounds the events that wait for one endpoint. Later ones are dropped and counted.
	maxWaiting = 256
	// sendTimeout bounds one delivery, from the connection to the response.
	sendTimeout = 10 * time.Second
	// firstRetry and longestRetry bound the time between two deliveries of one event; it doubles.
	firstRetry, longestRetry = time.Second, 5 * time.Minute
	// maxDeliveries bounds the deliveries of one event: with the times above it is given up after 32 minutes. Meanwhile later events
	// of the endpoint wait, so that they arrive in order.
	maxDeliveries = 14
	// maxSecretBytes and minSecretBytes bound a secret.
	minSecretBytes, maxSecretBytes = 16, 4096
	// unreachableAfter is how long a region must be unreachable before an event; a restart of its gateways takes less.
	unreachableAfter = 5 * time.Second
	// ObserveInterval is how often the state of the fleet is observed. A leader that was alive so long after an event has found it.
	ObserveInterval = 250 * time.Millisecond
	// handOverWindow is how long a node that does not lead remembers events, for when the leader fails before it has sent them.
	handOverWindow = 30 * time.Second
	// certificateWarning is the remaining time at which a certificate is soon expired; the event repeats every certificateRepeat.
	certificateWarning, certificateRepeat = 7 * 24 * time.Hour, 24 * time.Hour
	// maxTracked bounds the events that a watcher remembers for the hand-over.
	maxTracked = 256
)
