package endpointpicker

import "time"

const (
	// maxBodyChunk is the largest part of a request body in one message to the proxy, in bytes. Envoy's documentation of
	// FULL_DUPLEX_STREAMED recommends at most 64 KB; the rest is for the message around it. Smaller parts cost more messages.
	maxBodyChunk = 62 << 10
	// maxSubset bounds the endpoints of one subset hint. A longer hint is refused: it would cost memory and time for each
	// placement. It exceeds the workers of a zone (sched.MaxWorkers).
	maxSubset = 8192
	// maxHeaders bounds the headers of one message. Envoy itself allows 100 by default (max_headers_count).
	maxHeaders = 512
	// maxMessageBytes bounds one message of a proxy, in bytes. It is above the usual bounds of bodies, so that a body over the
	// spec's max_body is refused with 413. A larger message ends the stream with an error.
	maxMessageBytes = 64 << 20
	// pendingMessages is how many messages of one stream are read before they are handled. It lets the end of the stream be
	// noticed while the request waits in the queue. More would hold more of a fast answer in memory.
	pendingMessages = 4
	// connectionTimeout bounds the handshakes of a connection. It is that of the other listeners' request heads.
	connectionTimeout = 5 * time.Second
	// keepaliveTime is after how long without data a proxy's connection is probed, and keepaliveTimeout how long the answer may
	// take. A dead proxy's requests leave the ledger after the sum.
	keepaliveTime, keepaliveTimeout = 30 * time.Second, 10 * time.Second
	// minClientPing is how often a proxy may probe the connection. Envoy's default is off; 10 s is what operators set.
	minClientPing = 5 * time.Second
	// maxConnStreams bounds the requests of one connection. Envoy opens one connection for each of its threads.
	maxConnStreams = 16384
)
