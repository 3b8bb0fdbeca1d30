package batch

import "strconv"

func appendInt(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }

// whole reads a whole number of at most nine digits.
func whole(v []byte) (n int, ok bool) {
	if len(v) == 0 || len(v) > 9 {
		return 0, false
	}
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int(c-'0')
	}
	return n, true
}
