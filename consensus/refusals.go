package consensus

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
)

// maxRemembered bounds how many different refusals are told apart for the log; beyond it they are only counted.
const maxRemembered = 256

// refusals counts peers whose certificate or speech was refused, and logs each kind once.
type refusals struct {
	log   *slog.Logger
	count atomic.Uint64

	mu   sync.Mutex
	seen map[string]struct{}
}

func newRefusals(log *slog.Logger) *refusals {
	return &refusals{log: log, seen: make(map[string]struct{})}
}

// add counts err if it is a verdict on the peer, and not just a connection that broke.
func (r *refusals) add(peer string, err error) {
	if !isRefusal(err) {
		return
	}
	r.count.Add(1)
	if host, _, splitErr := net.SplitHostPort(peer); splitErr == nil {
		peer = host
	}
	if r.first(peer + "\x00" + err.Error()) {
		r.log.Warn("peer refused", "peer", peer, "error", err)
	}
}

func (r *refusals) first(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.seen[key]; ok || len(r.seen) >= maxRemembered {
		return false
	}
	r.seen[key] = struct{}{}
	return true
}

// isRefusal tells our own verdict from a lost connection and from the other side's verdict on us, which arrives as an
// operation error named "remote error".
func isRefusal(err error) bool {
	var op *net.OpError
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe):
		return false
	case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &op):
		return false
	}
	return !isContextEnd(err)
}
