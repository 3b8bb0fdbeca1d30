package engine

import (
	"bytes"
	"iter"
	"strconv"
)

// maxLineBytes is the longest line that is parsed, in bytes; longer ones are skipped.
const maxLineBytes = 64 << 10

// promSeries is one line of the Prometheus text format, with its name separated and the rest not parsed: most lines
// of a page are histograms that are not used.
type promSeries struct {
	name           []byte
	labelsAndValue []byte // labels in their brackets and the value
}

// scanSeries yields the series of a page whose names begin with prefix. Lines that are not series are skipped.
func scanSeries(text []byte, prefix string) iter.Seq[promSeries] {
	return func(yield func(promSeries) bool) {
		for len(text) > 0 {
			line := text
			if i := bytes.IndexByte(text, '\n'); i >= 0 {
				line, text = text[:i], text[i+1:]
			} else {
				text = nil
			}
			if len(line) > maxLineBytes || !bytes.HasPrefix(line, []byte(prefix)) {
				continue
			}
			if i := bytes.IndexAny(line, "{ \t"); i > 0 && !yield(promSeries{line[:i], line[i:]}) {
				return
			}
		}
	}
}

// parseSeries splits `{labels} value [timestamp]`.
func (s promSeries) parseSeries() (labels []byte, value float64, ok bool) {
	rest := s.labelsAndValue
	if rest[0] == '{' {
		end := closingBrace(rest)
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

// closingBrace finds the brace that ends the labels. A quoted value may contain one.
func closingBrace(l []byte) int {
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

// labelPairs yields the labels, with values as written, including escapes. It stops at the first that is not of the
// form name="value".
func labelPairs(labels []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for {
			labels = bytes.TrimLeft(labels, ", ")
			eq := bytes.IndexByte(labels, '=')
			if eq <= 0 || eq+1 >= len(labels) || labels[eq+1] != '"' {
				return
			}
			name, rest := bytes.TrimSpace(labels[:eq]), labels[eq+2:]
			end := closingQuote(rest)
			if end < 0 || !yield(name, rest[:end]) {
				return
			}
			labels = rest[end+1:]
		}
	}
}

// closingQuote finds the quote that ends a value.
func closingQuote(l []byte) int {
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

// labelValue is one label's value, nil if the label is absent.
func labelValue(labels []byte, name string) []byte {
	for n, v := range labelPairs(labels) {
		if string(n) == name {
			return v
		}
	}
	return nil
}

// labelNumber is one label's value as a number.
func labelNumber(labels []byte, name string) (float64, bool) {
	v, err := strconv.ParseFloat(string(labelValue(labels, name)), 64)
	return v, err == nil
}
