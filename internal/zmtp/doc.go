// Package zmtp implements ZeroMQ's wire protocol, ZMTP 3, as far as engines' cache events need it: one TCP
// connection, the NULL mechanism, messages of a few frames, and topic subscriptions. OpenPeer performs the
// handshake, PeerConn sends and receives.
//
// The existing pure Go library allocates as many bytes as a peer announces: nine bytes from a worker, or from
// any process on its port, can terminate the receiver. It also has no deadline on handshakes, leaks the socket
// of a failed one, and leaks goroutines when closed. Here every length is checked before a byte is kept, memory
// grows with received data and not with announced lengths, and a connection starts no goroutine: its owner
// reads and closes it.
//
// It never reconnects, never queues, and has no sockets in the sense of ZeroMQ: callers build those.
package zmtp
