package wire

import (
	"net/http"
	"net/textproto"
	"strings"
)

// maxLines bounds the header lines of a head that is read here.
const maxLines = 128

// fields reads header lines, each with its CRLF, without the empty line after them. It is false for anything that is
// written in an unusual way: line breaks that are not CRLF, folded lines, space where there should be none, names and
// values with bytes that do not belong there.
func fields(s string) (http.Header, bool) {
	n := strings.Count(s, "\n")
	if n > maxLines {
		return nil, false
	}
	h := make(http.Header, n)
	values := make([]string, n) // one piece of memory for all
	for s != "" {
		end := strings.IndexByte(s, '\r')
		if end < 0 || end+1 >= len(s) || s[end+1] != '\n' {
			return nil, false
		}
		line := s[:end]
		s = s[end+2:]
		colon := strings.IndexByte(line, ':')
		if colon <= 0 {
			return nil, false
		}
		value, ok := content(line[colon+1:])
		if !ok || !token(line[:colon]) {
			return nil, false
		}
		key := textproto.CanonicalMIMEHeaderKey(line[:colon])
		if old, there := h[key]; there {
			h[key] = append(old, value)
			continue
		}
		values[0] = value
		h[key] = values[:1:1]
		values = values[1:]
	}
	return h, true
}

// content is a header's value without the space around it.
func content(s string) (string, bool) {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "", false
		}
	}
	return s, true
}

// tokens are the bytes of names and methods (RFC 9110, 5.6.2).
var tokens = func() (t [256]bool) {
	for c := range 256 {
		b := byte(c)
		t[c] = b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0
	}
	return t
}()

func token(s string) bool {
	for i := range len(s) {
		if !tokens[s[i]] {
			return false
		}
	}
	return s != ""
}

// length reads a Content-Length: digits and nothing else.
func length(s string) (n int64, ok bool) {
	if s == "" || len(s) > 15 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = n*10 + int64(s[i]-'0')
	}
	return n, true
}

// listed says that one of the words of a header is word, whatever its case.
func listed(values []string, word string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.Trim(part, " \t"), word) {
				return true
			}
		}
	}
	return false
}

// printable says that a text has no space and no control characters, as hosts and targets must not.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return s != ""
}

// announced are the names in a Trailer header; false when one may not come there.
func announced(values []string) (http.Header, bool) {
	h := http.Header{}
	for _, v := range values {
		for name := range strings.SplitSeq(v, ",") {
			name = textproto.CanonicalMIMEHeaderKey(strings.Trim(name, " \t"))
			switch name {
			case "", "Transfer-Encoding", "Content-Length", "Trailer":
				return nil, false
			}
			if !token(name) {
				return nil, false
			}
			h[name] = nil
		}
	}
	return h, true
}
