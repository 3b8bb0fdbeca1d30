package main

// eventScanner finds the times of events and the end of a stream's last chunk, with any fragmentation.
type eventScanner struct {
	matched, digits int
	value           int64
	begun, ended    bool
	tail            [5]byte
}

func (s *eventScanner) scanEvents(b []byte) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for _, ch := range b {
			copy(s.tail[:], s.tail[1:])
			s.tail[4] = ch
			if s.matched == len(timestampMark) {
				if ch >= '0' && ch <= '9' {
					s.value, s.digits = s.value*10+int64(ch-'0'), s.digits+1
					continue
				}
				if s.digits == 19 && !yield(s.value) {
					return
				}
				s.matched, s.digits, s.value = 0, 0, 0
			}
			switch ch {
			case timestampMark[s.matched]:
				s.matched++
			case timestampMark[0]:
				s.matched = 1
			default:
				s.matched = 0
			}
		}
		s.ended = string(s.tail[:]) == "0\r\n\r\n"
	}
}
