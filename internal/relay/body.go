package relay

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// DefaultBodyTimeout bounds how long a caller may take to send a body when nothing else is configured.
const DefaultBodyTimeout = 30 * time.Second

// firstAlloc bounds what is set aside on the word of a Content-Length alone.
const firstAlloc = 1 << 20

// ReadBody reads a request's whole body, at most limit bytes and in no more time than within, so that slow senders cannot
// hold memory for ever; 0 means DefaultBodyTimeout. A body that says it is larger is refused before a byte of it is read.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) ([]byte, *openai.Error) {
	if within <= 0 {
		within = DefaultBodyTimeout
	}
	if r.ContentLength > limit {
		return nil, openai.BodyTooLarge(limit)
	}
	if enc := First(r.Header, "Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, &openai.Error{
			Status: http.StatusUnsupportedMediaType, Type: openai.TypeInvalidRequest,
			Code: openai.CodeEncoding, Message: "send the body without Content-Encoding", NoRetry: true,
		}
	}
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(within)) == nil {
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	}
	if n := r.ContentLength; n > 0 && n <= firstAlloc {
		body, err := readKnown(r.Body, int(n))
		if err != nil {
			return nil, bodyError(err, limit, within)
		}
		return body, nil
	}
	buf := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), firstAlloc)+bytes.MinRead))
	if _, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, limit)); err != nil {
		return nil, bodyError(err, limit, within)
	}
	return buf.Bytes(), nil
}

// readKnown reads a body of n bytes, and its end.
func readKnown(r io.Reader, n int) ([]byte, error) {
	buf := make([]byte, n+1)
	for have := 0; ; {
		more, err := r.Read(buf[have:])
		have += more
		switch {
		case err == io.EOF && have == n:
			return buf[:n:n], nil
		case err == io.EOF || have > n:
			return nil, io.ErrUnexpectedEOF
		case err != nil:
			return nil, err
		}
	}
}

func bodyError(err error, limit int64, within time.Duration) *openai.Error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return openai.BodyTooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return openai.BodyTooSlow(within)
	}
	e := openai.InvalidJSON("the body could not be read to its end")
	if errors.Is(err, io.ErrUnexpectedEOF) {
		e.Message = "the body is shorter than its Content-Length"
	}
	return e
}
