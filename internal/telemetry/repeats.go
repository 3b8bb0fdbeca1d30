package telemetry

import (
	"sync"
	"time"
)

const (
	// maxRepeats is how many lines with the same message are written per MinRepeatInterval. It leaves room for one line about
	// each of several workers or peers.
	maxRepeats = 30
	// maxRepeatedMessages bounds the messages that are counted. Messages are constants of the program.
	maxRepeatedMessages = 1024
)

// repeatLimiter limits the lines with the same message.
type repeatLimiter struct {
	mu        sync.Mutex
	byMessage map[string]*messageWindow
}

type messageWindow struct {
	began               time.Time
	written, suppressed int
}

// allowRepeat reports whether to write a line, and how many with its message were suppressed before it.
func (l *repeatLimiter) allowRepeat(message string, now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.byMessage[message]
	if w == nil {
		if len(l.byMessage) >= maxRepeatedMessages {
			return 0, true
		}
		if l.byMessage == nil {
			l.byMessage = map[string]*messageWindow{}
		}
		w = &messageWindow{began: now}
		l.byMessage[message] = w
	}
	if now.Sub(w.began) >= MinRepeatInterval {
		suppressed = w.suppressed
		*w = messageWindow{began: now}
	}
	if w.written >= maxRepeats {
		w.suppressed++
		return 0, false
	}
	w.written++
	return suppressed, true
}
