package telemetry

import "sync"

// OtherLabel stands for every value beyond a Labels' bound.
const OtherLabel = "other"

// Labels keeps the values of one label bounded, so that what outsiders send cannot grow a metric. Safe for concurrent
// use.
type Labels struct {
	mu   sync.RWMutex
	max  int
	seen map[string]struct{}
}

// NewLabels lets the first max values through.
func NewLabels(max int) *Labels { return &Labels{max: max, seen: make(map[string]struct{}, max)} }

// Value is v, or OtherLabel when v is new and there is no room for it.
func (l *Labels) Value(v string) string {
	l.mu.RLock()
	_, ok := l.seen[v]
	full := len(l.seen) >= l.max
	l.mu.RUnlock()
	switch {
	case ok:
		return v
	case full:
		return OtherLabel
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.seen[v]; !ok && len(l.seen) >= l.max {
		return OtherLabel
	}
	l.seen[v] = struct{}{}
	return v
}
