package http1

import "bytes"

// HeadLine is one line of a head: ranges over the buffer that the head was read into.
type HeadLine struct {
	// Name is the field name as received, Value the value without surrounding white space.
	Name, Value []byte
	// Line is the whole line with its CRLF.
	Line []byte
	// Framing marks a line that belongs to the connection or frames the body: Host, Content-Length, Connection and
	// Transfer-Encoding. It is never forwarded as it is.
	Framing bool
}

// Is reports whether the name of the line is name, which is in lower case.
func (h *HeadLine) Is(name string) bool { return equalFold(h.Name, name) }

// equalFold compares b with s, which is in lower case ASCII.
func equalFold(b []byte, s string) bool {
	if len(b) != len(s) {
		return false
	}
	for i := range b {
		c := b[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != s[i] {
			return false
		}
	}
	return true
}

// headScan is a head in the plain syntax that the request loop accepts. It accepts nothing that parseRequestHead and
// parseResponseHead refuse; what it refuses is parsed by them, from the same bytes.
type headScan struct {
	lines         []HeadLine
	path          []byte // of a request
	status        int    // of an answer
	contentLength int64  // -1: none
	chunked       bool
	closeAfter    bool // the connection ends with the message
}

// scanLines splits b, the lines of a head without the empty last one.
func (h *headScan) scanLines(b []byte) bool {
	h.lines, h.contentLength, h.chunked, h.closeAfter = h.lines[:0], -1, false, false
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\r')
		if end < 0 || end+1 >= len(b) || b[end+1] != '\n' || len(h.lines) == maxHeaderLines {
			return false
		}
		line := b[:end]
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			return false
		}
		for _, c := range line[:colon] {
			if !tokenBytes[c] {
				return false
			}
		}
		value := line[colon+1:]
		for _, c := range value {
			if c < ' ' && c != '\t' || c == 0x7f {
				return false
			}
		}
		for len(value) > 0 && (value[0] == ' ' || value[0] == '\t') {
			value = value[1:]
		}
		for len(value) > 0 && (value[len(value)-1] == ' ' || value[len(value)-1] == '\t') {
			value = value[:len(value)-1]
		}
		h.lines = append(h.lines, HeadLine{Name: line[:colon], Value: value, Line: b[:end+2]})
		b = b[end+2:]
	}
	return true
}

// readLength sets the length of the body from a Content-Length line, which may occur once.
func (h *headScan) readLength(value []byte) bool {
	if h.contentLength >= 0 || len(value) == 0 || len(value) > 15 {
		return false
	}
	h.contentLength = 0
	for _, c := range value {
		if c < '0' || c > '9' {
			return false
		}
		h.contentLength = h.contentLength*10 + int64(c-'0')
	}
	return true
}

var (
	postPrefix     = []byte("POST /")
	requestVersion = []byte(" HTTP/1.1")
	answerVersion  = []byte("HTTP/1.1 ")
)

// scanRequest reads the head of a POST with a plain path, one Host and one Content-Length. b ends with the empty line.
func (h *headScan) scanRequest(b []byte) bool {
	end := bytes.IndexByte(b, '\r')
	if end < 0 || b[end+1] != '\n' || !bytes.HasPrefix(b, postPrefix) || !bytes.HasSuffix(b[:end], requestVersion) {
		return false
	}
	h.path = b[len(postPrefix)-1 : end-len(requestVersion)]
	for i, c := range h.path {
		if !pathBytes[c] || c == '/' && i > 0 && h.path[i-1] == '/' {
			return false
		}
	}
	if !h.scanLines(b[end+2 : len(b)-2]) {
		return false
	}
	hosts, connections := 0, 0
	for i := range h.lines {
		line := &h.lines[i]
		switch len(line.Name) {
		case len("host"):
			if line.Is("host") {
				hosts++
				line.Framing = true
				if len(line.Value) == 0 {
					return false
				}
				for _, c := range line.Value {
					if !hostBytes[c] {
						return false
					}
				}
			}
		case len("expect"):
			if line.Is("expect") || line.Is("pragma") {
				return false
			}
		case len("upgrade"):
			if line.Is("upgrade") || line.Is("trailer") {
				return false
			}
		case len("connection"):
			if line.Is("connection") {
				h.closeAfter = equalFold(line.Value, "close")
				if connections++; connections > 1 || !h.closeAfter && !equalFold(line.Value, "keep-alive") {
					return false
				}
				line.Framing = true
			}
		case len("content-length"): // also http2-settings
			if line.Is("http2-settings") {
				return false
			}
			if line.Is("content-length") {
				if !h.readLength(line.Value) {
					return false
				}
				line.Framing = true
			}
		case len("transfer-encoding"):
			if line.Is("transfer-encoding") {
				return false
			}
		}
	}
	return hosts == 1 && h.contentLength > 0
}

// pathBytes are the bytes of a path that isPlainPath accepts, hostBytes those of isPlainHost.
var pathBytes, hostBytes = func() (path, host [256]bool) {
	for c := range 256 {
		s := string([]byte{byte(c)})
		path[c], host[c] = isPlainPath(s), isPlainHost(s)
	}
	return path, host
}()

// scanAnswer reads the head of a final answer whose body has a length or is chunked. b ends with the empty line.
func (h *headScan) scanAnswer(b []byte) bool {
	end := bytes.IndexByte(b, '\r')
	if end < 12 || b[end+1] != '\n' || !bytes.HasPrefix(b, answerVersion) || end > 12 && b[12] != ' ' {
		return false
	}
	h.status = 0
	for _, c := range b[9:12] {
		if c < '0' || c > '9' {
			return false
		}
		h.status = h.status*10 + int(c-'0')
	}
	for _, c := range b[12:end] {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	if h.status < 200 || h.status == 204 || h.status == 304 || !h.scanLines(b[end+2:len(b)-2]) {
		return false
	}
	connections := 0
	for i := range h.lines {
		line := &h.lines[i]
		switch len(line.Name) {
		case len("upgrade"):
			if line.Is("upgrade") || line.Is("trailer") {
				return false
			}
		case len("connection"):
			if line.Is("connection") {
				h.closeAfter = equalFold(line.Value, "close")
				if connections++; connections > 1 || !h.closeAfter && !equalFold(line.Value, "keep-alive") {
					return false
				}
				line.Framing = true
			}
		case len("content-length"):
			if line.Is("content-length") {
				if !h.readLength(line.Value) {
					return false
				}
				line.Framing = true
			}
		case len("transfer-encoding"):
			if line.Is("transfer-encoding") {
				if h.chunked || !equalFold(line.Value, "chunked") {
					return false
				}
				h.chunked, line.Framing = true, true
			}
		}
	}
	return h.chunked != (h.contentLength >= 0)
}
