//go:build !linux

package http1

// hangupWatcher needs epoll (Linux). On other systems it is nil, and net/http serves all connections.
type hangupWatcher struct{}

func newHangupWatcher() (*hangupWatcher, error) { return nil, nil }

func (*hangupWatcher) addConn(*serverConn) error { return nil }

func (*hangupWatcher) removeConn(*serverConn) {}

func (*hangupWatcher) closeAndWait() {}
