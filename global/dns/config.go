package dns

import (
	"log/slog"
	"time"
)

// Config of a Server.
type Config struct {
	// Listen holds host:port addresses; each is served over UDP and TCP. Port 0 takes a free one.
	Listen []string
	// View returns the snapshot to answer from. It is called once for each query; nil means none yet, and SERVFAIL.
	View func() View
	// NSID names this node to those who ask (RFC 5001, and id.server in class CH). Empty: nobody is told.
	NSID string
	// Log receives what an operator should know. Nil discards it.
	Log *slog.Logger
	// Observe is called after each message, from several goroutines, and must not block. Nil means nobody counts.
	Observe func(Event)
	// MaxTCP bounds open TCP connections of all listeners together; one address may hold a quarter. Default 512.
	MaxTCP int
}

// Event is what happened to one message.
type Event struct {
	// Qtype of the question, 0 where there was none.
	Qtype uint16
	// Rcode of the answer, or Dropped.
	Rcode int
	// Service is the number of the service that was asked for, or -1.
	Service int
	// Dur is how long the answer took to make.
	Dur time.Duration
	// TCP tells the transport.
	TCP bool
	// Stale tells that the answer's plan was not confirmed any more.
	Stale bool
}

// Dropped stands for the Rcode of a message that was given no answer.
const Dropped = -1

const defaultMaxTCP = 512
