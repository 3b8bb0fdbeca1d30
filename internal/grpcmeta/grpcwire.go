// Package grpcmeta parses the parts of gRPC over HTTP/2 (grpc/doc/PROTOCOL-HTTP2.md) that routing needs: the
// model of a call and its timeout, and it encodes refusals. Messages of KServe's inference service
// (inference.proto) are parsed by the number of the one field that names the model. MessageModelReader does so
// for a stream of messages. The package never decodes a tensor, and never changes a message except for the
// model's name.
package grpcmeta

import (
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// Headers and trailers of gRPC, in Go's canonical form.
const (
	HeaderStatus  = "Grpc-Status"
	HeaderMessage = "Grpc-Message"
	HeaderTimeout = "Grpc-Timeout"
	// ContentType is that of messages in no particular encoding.
	ContentType = "application/grpc"
)

// InferenceService is the path prefix of KServe's open inference protocol v2 over gRPC. The messages of its
// Model* methods name their model in field 1.
const InferenceService = "/inference.GRPCInferenceService/"

// IsGRPC reports whether a Content-Type is gRPC's. gRPC-Web is not: it frames its trailers differently.
func IsGRPC(contentType string) bool {
	rest, ok := strings.CutPrefix(contentType, ContentType)
	return ok && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// NamesModel reports whether the messages of a method name their model.
func NamesModel(path string) bool {
	method, ok := strings.CutPrefix(path, InferenceService)
	return ok && strings.HasPrefix(method, "Model")
}

// ParseTimeout parses a grpc-timeout: at most 8 digits and a unit. ok is false if it is invalid.
func ParseTimeout(s string) (d time.Duration, ok bool) {
	if len(s) < 2 || len(s) > 9 {
		return 0, false
	}
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 32)
	if err != nil {
		return 0, false
	}
	unit := map[byte]time.Duration{
		'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': 1,
	}[s[len(s)-1]]
	if unit == 0 {
		return 0, false
	}
	const longest = 365 * 24 * time.Hour
	if n > uint64(longest/unit) {
		return longest, true
	}
	return time.Duration(n) * unit, true
}

// FormatTimeout formats a grpc-timeout, rounded up to milliseconds.
func FormatTimeout(d time.Duration) string {
	ms := max((d+time.Millisecond-1)/time.Millisecond, 1)
	if ms > 99_999_999 {
		return strconv.FormatInt(int64(min(ms/1000, 99_999_999)), 10) + "S"
	}
	return strconv.FormatInt(int64(ms), 10) + "m"
}

// FrameHeaderBytes is the length of the header of each message: a compression flag and the length.
const FrameHeaderBytes = 5

// ParseFrameHeader parses the header of a message; b holds at least FrameHeaderBytes bytes.
func ParseFrameHeader(b []byte) (size int64, compressed bool) {
	return int64(binary.BigEndian.Uint32(b[1:])), b[0]&1 != 0
}

// FindModel finds the text of field 1 in a message, or in the beginning of one. ok is false if it is missing,
// duplicate, or incomplete. start and end bound the whole field, including its tag.
func FindModel(msg []byte) (name string, start, end int, ok bool) {
	for i := 0; i < len(msg); {
		tag, n := binary.Uvarint(msg[i:])
		if n <= 0 || tag>>3 == 0 {
			return name, start, end, ok && n == 0
		}
		at := i
		i += n
		switch tag & 7 {
		case 0:
			_, n = binary.Uvarint(msg[i:])
		case 1:
			n = 8
		case 5:
			n = 4
		case 2:
			size, m := binary.Uvarint(msg[i:])
			if m <= 0 || size > 1<<31 {
				return name, start, end, ok && m == 0
			}
			n = m + int(size)
			if tag>>3 == 1 {
				if ok || i+n > len(msg) {
					return "", 0, 0, false
				}
				name, start, end, ok = string(msg[i+m:i+n]), at, i+n, true
			}
		default:
			return "", 0, 0, false
		}
		if n <= 0 {
			return name, start, end, ok && n == 0
		}
		i += n
	}
	return name, start, end, ok
}

// ReplaceModel returns framed, the header and the available bytes of a message, with the model's field
// replaced. start and end are those returned by FindModel.
func ReplaceModel(framed []byte, start, end int, name string) []byte {
	field := binary.AppendUvarint([]byte{1<<3 | 2}, uint64(len(name)))
	field = append(field, name...)
	size, _ := ParseFrameHeader(framed)
	out := make([]byte, 0, len(framed)+len(field))
	out = append(out, framed[0])
	out = binary.BigEndian.AppendUint32(out, uint32(size+int64(len(field)-(end-start))))
	out = append(out, framed[FrameHeaderBytes:FrameHeaderBytes+start]...)
	out = append(out, field...)
	return append(out, framed[FrameHeaderBytes+end:]...)
}

// The status codes used here (grpc/doc/statuscodes.md).
const (
	InvalidArgument   = 3
	DeadlineExceeded  = 4
	NotFound          = 5
	PermissionDenied  = 7
	ResourceExhausted = 8
	Unimplemented     = 12
	Internal          = 13
	Unavailable       = 14
	Unauthenticated   = 16
)

// StatusCode returns the gRPC status of a refusal.
func StatusCode(e *openai.Error) int {
	switch {
	case e.Code == openai.CodeNotFound || e.Code == openai.CodeMethodNotAllowed:
		return Unimplemented
	case e.Code == openai.CodeDeadline:
		return DeadlineExceeded
	}
	switch e.Status {
	case 400, 415:
		return InvalidArgument
	case 401:
		return Unauthenticated
	case 403:
		return PermissionDenied
	case 404:
		return NotFound
	case 408, 504:
		return DeadlineExceeded
	case 413, 429:
		return ResourceExhausted
	case 502, 503:
		return Unavailable
	}
	return Internal
}

// EscapeMessage percent-encodes a message for its header.
func EscapeMessage(s string) string {
	const hex = "0123456789ABCDEF"
	out := make([]byte, 0, len(s)+16)
	for i := range len(s) {
		if c := s[i]; c >= ' ' && c <= '~' && c != '%' {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&15])
		}
	}
	return string(out)
}
