package reqguard

import "bytes"

// FramingFault is a violated rule, by its name in metrics. The empty fault means none.
type FramingFault string

// The faults of a request head (RFC 9112). Each closes the connection.
const (
	BareLF             FramingFault = "bare_lf"           // a line that ends without CR (2.2)
	InvalidRequestLine FramingFault = "request_line"      // not "method SP target SP HTTP/1.x" (3); HTTP/0.9 too
	FoldedLine         FramingFault = "folded"            // a line that continues the one before (5.2)
	InvalidFieldName   FramingFault = "field_name"        // an invalid token, or a space before the colon (5.1)
	ControlCharacter   FramingFault = "control"           // a control character in a value (RFC 9110, 5.5)
	InvalidLength      FramingFault = "length"            // a Content-Length that is not a plain number
	DuplicateLength    FramingFault = "length_twice"      // more than one Content-Length, equal or not
	LengthAndCoding    FramingFault = "length_and_coding" // Content-Length together with Transfer-Encoding (6.1)
	InvalidCoding      FramingFault = "coding"            // a Transfer-Encoding other than chunked, once, in HTTP/1.1
	LineTooLong        FramingFault = "too_long"          // a line longer than any limit on heads
	PlainHTTP          FramingFault = "in_clear"          // HTTP where TLS is expected
)

// ListFaults returns all faults.
func ListFaults() []FramingFault {
	return []FramingFault{BareLF, InvalidRequestLine, FoldedLine, InvalidFieldName, ControlCharacter, InvalidLength, DuplicateLength, LengthAndCoding, InvalidCoding, LineTooLong, PlainHTTP}
}

// Message describes the fault and its correction.
func (f FramingFault) Message() string {
	switch f {
	case BareLF:
		return "a line of the request's head ends without CR: end each with CRLF"
	case InvalidRequestLine:
		return "the request line is not \"METHOD target HTTP/1.1\", with single spaces"
	case FoldedLine:
		return "a header line continues the one before it: write each header on one line"
	case InvalidFieldName:
		return "a header's name holds what no name may, or a space before its colon"
	case ControlCharacter:
		return "a header's value holds a control character"
	case InvalidLength:
		return "Content-Length is not a plain decimal number"
	case DuplicateLength:
		return "Content-Length is there more than once: send one"
	case LengthAndCoding:
		return "Content-Length and Transfer-Encoding are both there: send one of them"
	case InvalidCoding:
		return "Transfer-Encoding is not \"chunked\", once, in HTTP/1.1"
	case LineTooLong:
		return "a line of the request's head is too long"
	case PlainHTTP:
		return "this is an HTTPS port: write https:// in the URL"
	}
	return "the request's framing is broken"
}

// maxLengthDigits bounds a Content-Length, so that it fits int64.
const maxLengthDigits = 18

// RequestHead parses the head of one request, line by line. The zero value is ready to use.
type RequestHead struct {
	// Length of the body, and whether it is chunked instead, as far as lines were parsed.
	Length  int64
	Chunked bool
	// Done: the empty line at the end was parsed.
	Done bool

	started, isHTTP10, hasLength bool
}

// CheckLine checks the next line, including its LF. It does not keep it.
func (h *RequestHead) CheckLine(b []byte) FramingFault {
	n := len(b) - 2
	if n < 0 || b[n] != '\r' {
		return BareLF
	}
	switch b = b[:n]; {
	case !h.started && n == 0: // RFC 9112, 2.2: empty lines before a request are ignored
		return ""
	case !h.started:
		h.started = true
		return h.checkRequestLine(b)
	case n == 0:
		h.Done = true
		return ""
	case b[0] == ' ' || b[0] == '\t':
		return FoldedLine
	}
	return h.checkField(b)
}

func (h *RequestHead) checkRequestLine(b []byte) FramingFault {
	method := bytes.IndexByte(b, ' ')
	version := bytes.LastIndexByte(b, ' ')
	if method <= 0 || version <= method+1 || !isToken(b[:method]) {
		return InvalidRequestLine
	}
	for _, c := range b[method+1 : version] {
		if c <= ' ' || c == 0x7f {
			return InvalidRequestLine
		}
	}
	switch string(b[version+1:]) {
	case "HTTP/1.1":
		return ""
	case "HTTP/1.0":
		h.isHTTP10 = true
		return ""
	}
	return InvalidRequestLine
}

func (h *RequestHead) checkField(b []byte) FramingFault {
	colon := bytes.IndexByte(b, ':')
	if colon <= 0 || !isToken(b[:colon]) {
		return InvalidFieldName
	}
	value := b[colon+1:]
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return ControlCharacter
		}
	}
	switch {
	case colon == len("Content-Length") && bytes.EqualFold(b[:colon], []byte("Content-Length")):
		return h.readLength(bytes.Trim(value, " \t"))
	case colon == len("Transfer-Encoding") && bytes.EqualFold(b[:colon], []byte("Transfer-Encoding")):
		return h.readCoding(bytes.Trim(value, " \t"))
	}
	return ""
}

func (h *RequestHead) readLength(v []byte) FramingFault {
	switch {
	case h.Chunked:
		return LengthAndCoding
	case h.hasLength:
		return DuplicateLength
	case len(v) == 0 || len(v) > maxLengthDigits:
		return InvalidLength
	}
	h.hasLength = true
	for _, c := range v {
		if c < '0' || c > '9' {
			return InvalidLength
		}
		h.Length = h.Length*10 + int64(c-'0')
	}
	return ""
}

func (h *RequestHead) readCoding(v []byte) FramingFault {
	switch {
	case h.hasLength:
		return LengthAndCoding
	case h.Chunked || h.isHTTP10 || !bytes.EqualFold(v, []byte("chunked")):
		return InvalidCoding
	}
	h.Chunked = true
	return ""
}

// isToken reports whether b is a token (RFC 9110, 5.6.2).
func isToken(b []byte) bool {
	for _, c := range b {
		if !tokenBytes[c] {
			return false
		}
	}
	return true
}

var tokenBytes = func() (t [256]bool) {
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
