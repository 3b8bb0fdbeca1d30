package relay

import "net/http"

// maxRequestID bounds a client's name for a request, in bytes: it goes into logs, records and headers.
const maxRequestID = 128

// ClientRequestID is what a client calls its request, in X-Client-Request-Id or X-Request-Id, or empty. A value that is
// too long for a log, or has other characters than printable ASCII without spaces, is ignored.
func ClientRequestID(h http.Header) string {
	for _, name := range [...]string{"X-Client-Request-Id", HeaderXRequestID} {
		if id := First(h, name); id != "" && loggable(id) {
			return id
		}
	}
	return ""
}

func loggable(id string) bool {
	if len(id) > maxRequestID {
		return false
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}
