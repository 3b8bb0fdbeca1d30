package engine

import (
	"bytes"
	"iter"
	"strconv"
)

// maxLine is the longest line that is read, in bytes; longer ones are passed over.
const maxLine = 64 << 10

// series is one line of the Prometheus text format, its name apart and the rest not yet read: most lines of a page are
// histograms that nobody asks for.
type series struct {
	name []byte
	rest []byte // labels in their brackets and the value
}

// lines gives the series of a page whose names begin with prefix. Lines that are no series are passed over.
func lines(text []byte, prefix string) iter.Seq[series] {
	return func(yield func(series) bool) {
		for len(text) > 0 {
			line := text
			if i := bytes.IndexByte(text, '\n'); i >= 0 {
				line, text = text[:i], text[i+1:]
			} else {
				text = nil
			}
			if len(line) > maxLine || !bytes.HasPrefix(line, []byte(prefix)) {
				continue
			}
			if i := bytes.IndexAny(line, "{ \t"); i > 0 && !yield(series{line[:i], line[i:]}) {
				return
			}
		}
	}
}

// read splits `{labels} value [timestamp]`.
func (s series) read() (labels []byte, value float64, ok bool) {
	rest := s.rest
	if rest[0] == '{' {
		end := closing(rest)
		if end < 0 {
			return nil, 0, false
		}
		labels, rest = rest[1:end], rest[end+1:]
	}
	rest = bytes.TrimSpace(rest)
	if i := bytes.IndexAny(rest, " \t"); i >= 0 {
		if bytes.ContainsAny(bytes.TrimSpace(rest[i:]), " \t") {
			return nil, 0, false
		}
		rest = rest[:i]
	}
	v, err := strconv.ParseFloat(string(rest), 64)
	return labels, v, err == nil
}

// closing finds the bracket that ends the labels. A quote inside a label may hide one.
func closing(l []byte) int {
	quoted := false
	for i := 1; i < len(l); i++ {
		switch c := l[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i
		}
	}
	return -1
}

// pairs gives the labels one by one, values as they are written, escapes included. It stops at the first that is not
// of the form name="value".
func pairs(labels []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for {
			labels = bytes.TrimLeft(labels, ", ")
			eq := bytes.IndexByte(labels, '=')
			if eq <= 0 || eq+1 >= len(labels) || labels[eq+1] != '"' {
				return
			}
			name, rest := bytes.TrimSpace(labels[:eq]), labels[eq+2:]
			end := quote(rest)
			if end < 0 || !yield(name, rest[:end]) {
				return
			}
			labels = rest[end+1:]
		}
	}
}

// quote finds the quote that ends a value.
func quote(l []byte) int {
	for i := 0; i < len(l); i++ {
		switch l[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// label is one label's value, nil when it is not there.
func label(labels []byte, name string) []byte {
	for n, v := range pairs(labels) {
		if string(n) == name {
			return v
		}
	}
	return nil
}

// number is one label's value as a number.
func number(labels []byte, name string) (float64, bool) {
	v, err := strconv.ParseFloat(string(label(labels, name)), 64)
	return v, err == nil
}
