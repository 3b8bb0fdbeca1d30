package dns

import (
	"crypto/tls"
	"log/slog"
	"runtime"
	"time"
)

// processors is how many the process was given. It is taken before anybody raises GOMAXPROCS for threads that only
// wait: a second reader on one core halves the batches and doubles the wake-ups.
var processors = runtime.GOMAXPROCS(0)

// Readers is how many readers an address gets unless a Config says otherwise: one for each processor.
func Readers() int { return min(processors, maxSockets) }

// Config of a Server.
type Config struct {
	// Listen holds host:port addresses; each is served over UDP and TCP. Port 0 takes a free one.
	Listen []string
	// Deaf opens no socket: questions come by Answer alone.
	Deaf bool
	// TLSListen holds host:port addresses for DNS over TLS (RFC 7858). Empty: none.
	TLSListen []string
	// TLS is what those addresses show; nil where there are none. The server sets the protocol's name itself.
	TLS *tls.Config
	// View returns the snapshot to answer from. It is called once for each query; nil means none yet, and SERVFAIL.
	View func() View
	// Secrets returns what server cookies (RFC 9018) are made and checked with: the first makes them. Nil, or none:
	// cookies are ignored. The slice is not modified.
	Secrets func() []Secret
	// NSID names this node to those who ask (RFC 5001, and id.server in class CH). Empty: nobody is told.
	NSID string
	// Version is told to those who ask for version.bind in class CH. Empty: nobody is told.
	Version string
	// Explain answers the debug names _why, _whoami and _view.
	Explain bool
	// Rate bounds answers of one class per second to one network over UDP, see limiter. 0: no bound.
	Rate int
	// Slip sends every so manyth answer over the rate truncated instead of not at all. 0: never.
	Slip int
	// Dedicated lets each UDP reader keep one of the scheduler's processors while it waits: a query then wakes no
	// scheduler, which saves about 2.4 µs of CPU where few queries come at a time. The process must be given as many
	// processors more (runtime.GOMAXPROCS) as there are readers.
	Dedicated bool
	// Readers is how many goroutines read at each address over UDP. Default: Readers().
	Readers int
	// Log receives what an operator should know. Nil discards it.
	Log *slog.Logger
	// Observe is called after each message or batch of messages, from several goroutines, and must not block. Nil
	// means nobody counts.
	Observe func(Event)
	// MaxTCP bounds open TCP connections of all listeners together; one address may hold a quarter. Default 512.
	MaxTCP int
	// Slow is how many goroutines answer what is not the common case over UDP. Default: the number of processors.
	Slow int
}

// Transport is how a message came.
type Transport uint8

// The transports.
const (
	UDP Transport = iota
	TCP
	TLS
)

// Event is what happened to messages that are alike.
type Event struct {
	// N is how many.
	N int
	// Qtype of the question, 0 where there was none.
	Qtype uint16
	// Rcode of the answer, or Dropped.
	Rcode int
	// Service is the number of the service that was asked for, or -1. It is not known of the fast path's.
	Service int
	// Dur is how long an answer took to make.
	Dur time.Duration
	// By is how they came.
	By Transport
	// Fast tells that the fast path answered.
	Fast bool
	// Stale tells that the answer's plan was not confirmed any more.
	Stale bool
	// Limited tells what rate limiting did.
	Limited Limited
}

// Dropped stands for the Rcode of a message that was given no answer.
const Dropped = -1

const defaultMaxTCP = 512
