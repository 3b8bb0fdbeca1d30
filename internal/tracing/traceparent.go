package tracing

import "encoding/hex"

// HeaderTraceParent and HeaderTraceState are the headers of W3C Trace Context, in canonical form.
const (
	HeaderTraceParent = "Traceparent"
	HeaderTraceState  = "Tracestate"
)

// TraceID identifies a trace, SpanID a span in it.
type (
	TraceID [16]byte
	SpanID  [8]byte
)

// TraceParent is the content of a traceparent header.
type TraceParent struct {
	Trace   TraceID
	Span    SpanID
	Sampled bool
}

// traceParentLen is the length of a header of version 00.
const traceParentLen = 55

// ParseTraceParent parses a header. A later version than 00 may have more fields after those of 00.
func ParseTraceParent(s string) (p TraceParent, ok bool) {
	if len(s) < traceParentLen || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return p, false
	}
	if len(s) > traceParentLen && (s[:2] == "00" || s[traceParentLen] != '-') {
		return p, false
	}
	var version, flags [1]byte
	for _, field := range [...]struct {
		to   []byte
		text string
	}{{version[:], s[:2]}, {p.Trace[:], s[3:35]}, {p.Span[:], s[36:52]}, {flags[:], s[53:55]}} {
		if !decodeLowerHex(field.to, field.text) {
			return TraceParent{}, false
		}
	}
	if version[0] == 0xff || p.Trace == (TraceID{}) || p.Span == (SpanID{}) {
		return TraceParent{}, false
	}
	p.Sampled = flags[0]&1 != 0
	return p, true
}

// decodeLowerHex decodes hexadecimal digits; upper-case ones are not allowed.
func decodeLowerHex(to []byte, text string) bool {
	for i := range len(text) {
		if c := text[i]; c >= 'A' && c <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(to, []byte(text))
	return err == nil
}

// AppendHeader appends the header's value.
func (p TraceParent) AppendHeader(b []byte) []byte {
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, p.Trace[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, p.Span[:])
	if p.Sampled {
		return append(b, "-01"...)
	}
	return append(b, "-00"...)
}
