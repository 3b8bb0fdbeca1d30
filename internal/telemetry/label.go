package telemetry

import "sync"

// OtherLabel replaces every value beyond the bound of a BoundedLabel.
const OtherLabel = "other"

// BoundedLabel bounds the number of values of one label, so that input from outside cannot grow a metric without bound. Safe
// for concurrent use.
type BoundedLabel struct {
	mu   sync.RWMutex
	max  int
	seen map[string]struct{}
}

// NewBoundedLabel returns a label that accepts the first max different values.
func NewBoundedLabel(max int) *BoundedLabel {
	return &BoundedLabel{max: max, seen: make(map[string]struct{}, max)}
}

// BoundValue returns v, or OtherLabel if v is new and max values were accepted already.
func (l *BoundedLabel) BoundValue(v string) string {
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
