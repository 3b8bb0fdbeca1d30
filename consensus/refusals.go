package consensus

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxRememberedRefusals bounds how many different refusals are logged separately. Beyond it they are only counted
	// until one of them expires.
	maxRememberedRefusals = 256
	// refusalLogInterval is how often the same refusal is logged, and how long it is kept. With maxRememberedRefusals
	// it bounds the log to 256 lines an hour.
	refusalLogInterval = time.Hour
)

// refusalLog counts peers whose certificate or messages were refused, and logs each kind once in refusalLogInterval.
type refusalLog struct {
	log   *slog.Logger
	count atomic.Uint64

	mu     sync.Mutex
	logged map[string]time.Time // by peer and error: when it was logged
}

func newRefusalLog(log *slog.Logger) *refusalLog {
	return &refusalLog{log: log, logged: make(map[string]time.Time)}
}

// countRefusal counts err if this node rejected the peer, as opposed to a broken connection.
func (r *refusalLog) countRefusal(peer string, err error) {
	if !isRefusal(err) {
		return
	}
	r.count.Add(1)
	if host, _, splitErr := net.SplitHostPort(peer); splitErr == nil {
		peer = host
	}
	if r.shouldLog(peer+"\x00"+err.Error(), time.Now()) {
		r.log.Warn("peer refused", "peer", peer, "error", err)
	}
}

// shouldLog reports whether a refusal is to be logged at now, and if so records it.
func (r *refusalLog) shouldLog(key string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, ok := r.logged[key]; ok && now.Sub(at) < refusalLogInterval {
		return false
	}
	if len(r.logged) >= maxRememberedRefusals {
		maps.DeleteFunc(r.logged, func(_ string, at time.Time) bool { return now.Sub(at) >= refusalLogInterval })
	}
	if _, ok := r.logged[key]; !ok && len(r.logged) >= maxRememberedRefusals {
		return false
	}
	r.logged[key] = now
	return true
}

// isRefusal separates this node's own rejections from lost connections and from rejections by the other side, which
// arrive as an operation error named "remote error".
func isRefusal(err error) bool {
	var op *net.OpError
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe):
		return false
	case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &op):
		return false
	}
	return !isContextError(err)
}
