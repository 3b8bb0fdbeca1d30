// Package zmtp speaks ZeroMQ's wire protocol, ZMTP 3, as far as engines' cache events need it: one TCP connection, the
// NULL mechanism, messages of a few frames, and a subscription to topics.
//
// It is written here because the pure Go library that there is takes a frame's length from the peer and makes that
// many bytes at once: nine bytes from a worker, or from whatever has its port, end the process that listens. It also has
// no deadline on handshakes, keeps the socket of a failed one, and leaves goroutines behind when it is closed. Here every
// length is bounded before a byte is kept, memory follows what has arrived and not what was announced, and a connection
// starts no goroutine: its owner reads and closes it.
//
// It never reconnects, never queues, and has no sockets in ZeroMQ's sense: those are its callers' to make.
package zmtp
