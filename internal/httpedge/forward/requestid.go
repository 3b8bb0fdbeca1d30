package forward

import "net/http"

// maxRequestIDBytes bounds the client's ID of a request, in bytes: it goes into logs, records and headers.
const maxRequestIDBytes = 128

// ClientRequestID returns the client's ID of a request, from X-Client-Request-Id or X-Request-Id, or empty. A
// value that is too long, or not printable ASCII without spaces, is ignored.
func ClientRequestID(h http.Header) string {
	for _, name := range [...]string{"X-Client-Request-Id", HeaderXRequestID} {
		if id := FirstValue(h, name); id != "" && isLoggable(id) {
			return id
		}
	}
	return ""
}

func isLoggable(id string) bool {
	if len(id) > maxRequestIDBytes {
		return false
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}
