package batch

// steady is how many calls of the limit's size must pass before a greater one is tried again.
const steady = 16

// limit is the greatest call that an engine is believed to take, in items: some take fewer inputs than their operators
// know, some only one. The zero value believes everything.
type limit struct {
	n     int // 0: never refused
	calls int // that passed at this limit
}

// of is the size that may be sent where the operator allows most.
func (l *limit) of(most int) int {
	if l.n == 0 {
		return most
	}
	return min(l.n, most)
}

// learn takes in how a call of that size went.
func (l *limit) learn(size int, refused bool, most int) {
	switch {
	case refused:
		l.n, l.calls = max(1, size/2), 0
	case l.n > 0 && size >= l.n:
		if l.calls++; l.calls >= steady {
			l.n += max(1, l.n/8)
			l.calls = 0
		}
		if l.n >= most {
			l.n = 0
		}
	}
}
