package kube

import "time"

const (
	// rebuildDelay is how long a change waits for others before the workers are built again. A rollout changes many pods
	// at once; a longer delay costs as much reaction time.
	rebuildDelay = 50 * time.Millisecond
	// requestTimeout bounds one list, and the time until a watch begins. It is long for a loaded API server; a longer one
	// delays only the log of a failure.
	requestTimeout = 30 * time.Second
	// maxLoggedProblems bounds the log lines about pods that one change causes. Further problems are only counted.
	maxLoggedProblems = 16
	// maxMessageBytes bounds a message of the API server in a log line, in bytes.
	maxMessageBytes = 512
)
