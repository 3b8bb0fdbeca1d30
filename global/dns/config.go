package dns

import (
	"crypto/tls"
	"log/slog"
	"runtime"
	"time"
)

// initialProcs is GOMAXPROCS at process start. It is read before GOMAXPROCS is raised for threads that only wait: a
// second reader on one core halves the batches and doubles the wake-ups.
var initialProcs = runtime.GOMAXPROCS(0)

// DefaultReaders is the default number of readers per address: one for each processor.
func DefaultReaders() int { return min(initialProcs, maxSockets) }

// Config holds the settings of a Server.
type Config struct {
	// Listen holds host:port addresses; each is served over UDP and TCP. Port 0 selects a free port.
	Listen []string
	// NoSockets opens no socket: queries come through Answer only.
	NoSockets bool
	// TLSListen holds host:port addresses for DNS over TLS (RFC 7858). Empty: none.
	TLSListen []string
	// TLS is the TLS configuration of those addresses; nil if there are none. The server adds the ALPN protocol name
	// itself.
	TLS *tls.Config
	// Snapshot returns the snapshot to answer from. It is called once for each query. While it returns nil, answers
	// are SERVFAIL.
	Snapshot func() Snapshot
	// CookieSecrets returns the secrets of server cookies (RFC 9018): the first creates them, all verify them. If it
	// is nil or returns none, cookies are ignored. The slice is not modified.
	CookieSecrets func() []CookieSecret
	// NSID is the node's name in answers to NSID queries (RFC 5001) and to id.server in class CH. Empty disables
	// both.
	NSID string
	// Version answers version.bind in class CH. Empty disables it.
	Version string
	// Explain enables the debug names _why, _whoami and _view.
	Explain bool
	// ResponseRate bounds the answers of one class per second to one network over UDP, see responseLimiter. 0: no
	// bound.
	ResponseRate int
	// SlipEvery sends every n-th answer above the rate truncated instead of dropping it. 0: never.
	SlipEvery int
	// DedicatedProcs lets each UDP reader keep one of the scheduler's processors while it waits: a query then wakes
	// no scheduler, which saves about 2.4 µs of CPU at low query rates. GOMAXPROCS must be raised by the number of
	// readers.
	DedicatedProcs bool
	// XDP are network interfaces on which a program in the kernel answers plain queries for CompiledNames, see package
	// xdp. Where it cannot be loaded, a log line says why, and the sockets serve. Empty: none.
	XDP []string
	// Readers is how many goroutines read at each address over UDP. Default: DefaultReaders().
	Readers int
	// Log receives log messages for the operator. Nil discards them.
	Log *slog.Logger
	// Observe is called after each message or batch of messages, from several goroutines, and must not block. May be
	// nil.
	Observe func(QueryEvent)
	// MaxTCPConns bounds the open TCP connections of all listeners together; one address may hold a quarter. Default
	// 512.
	MaxTCPConns int
	// SlowGoroutines is how many goroutines serve the slow path of UDP. Default: the number of processors.
	SlowGoroutines int
}

// Transport is the transport of a message.
type Transport uint8

// The transports.
const (
	UDP Transport = iota
	TCP
	TLS
)

// QueryEvent describes a number of messages with equal properties.
type QueryEvent struct {
	// Count is the number of messages.
	Count int
	// Qtype of the question, 0 if there was none.
	Qtype uint16
	// Rcode of the answer, or RcodeDropped.
	Rcode int
	// Service is the number of the requested service, or -1. The fast path does not report it.
	Service int
	// Duration is how long it took to make an answer.
	Duration time.Duration
	// Transport of the messages.
	Transport Transport
	// FastPath is set if the fast path answered.
	FastPath bool
	// Stale is set if the plan of the answer is no longer confirmed.
	Stale bool
	// RateLimit is the result of rate limiting.
	RateLimit RateLimitResult
}

// RcodeDropped is the Rcode of a message that was not answered.
const RcodeDropped = -1

const defaultMaxTCPConns = 512
