package resume

import "bytes"

// maxEventBytes bounds what is buffered of an incomplete event, in bytes.
const maxEventBytes = 16 << 10

// eventLength returns the length of the first event in d, including its blank line; -1 if it is incomplete, -2
// if lines end with CR alone. Bytes before from need not be examined again.
func eventLength(d []byte, from int) int {
	i := max(from-3, 0)
	if i == 0 && len(d) > 0 && d[0] == '\n' {
		return 1
	}
	for {
		j := bytes.IndexByte(d[i:], '\n')
		end := i + j
		if j < 0 {
			end = len(d)
		}
		if k := bytes.IndexByte(d[i:end], '\r'); k >= 0 && i+k+1 < len(d) && d[i+k+1] != '\n' {
			return -2
		}
		switch {
		case j < 0 || end+1 >= len(d):
			return -1
		case d[end+1] == '\n':
			return end + 2
		case d[end+1] == '\r' && end+2 < len(d) && d[end+2] == '\n':
			return end + 3
		case d[end+1] == '\r' && end+2 == len(d):
			return -1
		}
		i = end + 1
	}
}
