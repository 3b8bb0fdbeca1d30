package framing

import "bytes"

// Fault is a broken rule, as metrics name it. The empty Fault is none.
type Fault string

// The faults of a request's head (RFC 9112). Each ends the connection.
const (
	BareLF          Fault = "bare_lf"           // a line that ends without CR (2.2)
	RequestLine     Fault = "request_line"      // not "method SP target SP HTTP/1.x" (3); HTTP/0.9 too
	Folded          Fault = "folded"            // a line that continues the one before (5.2)
	FieldName       Fault = "field_name"        // a name that is no token, or a space before the colon (5.1)
	Control         Fault = "control"           // a control character in a value (RFC 9110, 5.5)
	Length          Fault = "length"            // a Content-Length that is no plain number
	LengthTwice     Fault = "length_twice"      // more than one Content-Length, be they equal or not
	LengthAndCoding Fault = "length_and_coding" // Content-Length beside Transfer-Encoding (6.1)
	Coding          Fault = "coding"            // a Transfer-Encoding other than chunked, once, in HTTP/1.1
	TooLong         Fault = "too_long"          // a line longer than any bound on heads
	InClear         Fault = "in_clear"          // HTTP where TLS is spoken
)

// Faults lists them.
func Faults() []Fault {
	return []Fault{BareLF, RequestLine, Folded, FieldName, Control, Length, LengthTwice, LengthAndCoding, Coding, TooLong, InClear}
}

// Message says what is wrong and what to write instead.
func (f Fault) Message() string {
	switch f {
	case BareLF:
		return "a line of the request's head ends without CR: end each with CRLF"
	case RequestLine:
		return "the request line is not \"METHOD target HTTP/1.1\", with single spaces"
	case Folded:
		return "a header line continues the one before it: write each header on one line"
	case FieldName:
		return "a header's name holds what no name may, or a space before its colon"
	case Control:
		return "a header's value holds a control character"
	case Length:
		return "Content-Length is not a plain decimal number"
	case LengthTwice:
		return "Content-Length is there more than once: send one"
	case LengthAndCoding:
		return "Content-Length and Transfer-Encoding are both there: send one of them"
	case Coding:
		return "Transfer-Encoding is not \"chunked\", once, in HTTP/1.1"
	case TooLong:
		return "a line of the request's head is too long"
	case InClear:
		return "this is an HTTPS port: write https:// in the URL"
	}
	return "the request's framing is broken"
}

// maxDigits bounds a Content-Length, so that it fits int64.
const maxDigits = 18

// Head reads the head of one request, line by line. The zero value is ready.
type Head struct {
	// Length of the body, and whether it comes in chunks instead; both as far as lines have been read.
	Length  int64
	Chunked bool
	// Done: the empty line that ends the head was read.
	Done bool

	begun, old, lengths bool
}

// Line takes the next line, with its LF. It keeps nothing of it.
func (h *Head) Line(b []byte) Fault {
	n := len(b) - 2
	if n < 0 || b[n] != '\r' {
		return BareLF
	}
	switch b = b[:n]; {
	case !h.begun && n == 0: // RFC 9112, 2.2: empty lines before a request are passed over
		return ""
	case !h.begun:
		h.begun = true
		return h.first(b)
	case n == 0:
		h.Done = true
		return ""
	case b[0] == ' ' || b[0] == '\t':
		return Folded
	}
	return h.field(b)
}

func (h *Head) first(b []byte) Fault {
	method := bytes.IndexByte(b, ' ')
	version := bytes.LastIndexByte(b, ' ')
	if method <= 0 || version <= method+1 || !token(b[:method]) {
		return RequestLine
	}
	for _, c := range b[method+1 : version] {
		if c <= ' ' || c == 0x7f {
			return RequestLine
		}
	}
	switch string(b[version+1:]) {
	case "HTTP/1.1":
		return ""
	case "HTTP/1.0":
		h.old = true
		return ""
	}
	return RequestLine
}

func (h *Head) field(b []byte) Fault {
	colon := bytes.IndexByte(b, ':')
	if colon <= 0 || !token(b[:colon]) {
		return FieldName
	}
	value := b[colon+1:]
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return Control
		}
	}
	switch {
	case colon == len("Content-Length") && bytes.EqualFold(b[:colon], []byte("Content-Length")):
		return h.length(bytes.Trim(value, " \t"))
	case colon == len("Transfer-Encoding") && bytes.EqualFold(b[:colon], []byte("Transfer-Encoding")):
		return h.coding(bytes.Trim(value, " \t"))
	}
	return ""
}

func (h *Head) length(v []byte) Fault {
	switch {
	case h.Chunked:
		return LengthAndCoding
	case h.lengths:
		return LengthTwice
	case len(v) == 0 || len(v) > maxDigits:
		return Length
	}
	h.lengths = true
	for _, c := range v {
		if c < '0' || c > '9' {
			return Length
		}
		h.Length = h.Length*10 + int64(c-'0')
	}
	return ""
}

func (h *Head) coding(v []byte) Fault {
	switch {
	case h.lengths:
		return LengthAndCoding
	case h.Chunked || h.old || !bytes.EqualFold(v, []byte("chunked")):
		return Coding
	}
	h.Chunked = true
	return ""
}

// token reports whether b is one (RFC 9110, 5.6.2).
func token(b []byte) bool {
	for _, c := range b {
		if !tokens[c] {
			return false
		}
	}
	return true
}

var tokens = func() (t [256]bool) {
	for c := '0'; c <= '9'; c++ {
		t[c] = true
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] = true
	}
	return t
}()
