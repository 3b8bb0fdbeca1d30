package relay

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// bodyTimeout bounds how long a caller may take to send a body, so that slow senders cannot hold memory for ever.
const bodyTimeout = 30 * time.Second

// firstAlloc bounds what is set aside on the word of a Content-Length alone.
const firstAlloc = 1 << 20

// ReadBody reads a request's whole body, at most limit bytes. A body that says it is larger is refused before a byte
// of it is read.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *openai.Error) {
	if r.ContentLength > limit {
		return nil, openai.BodyTooLarge(limit)
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, &openai.Error{
			Status: http.StatusUnsupportedMediaType, Type: openai.TypeInvalidRequest,
			Code: openai.CodeEncoding, Message: "send the body without Content-Encoding", NoRetry: true,
		}
	}
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(time.Now().Add(bodyTimeout)) == nil {
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	}
	buf := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), firstAlloc)+bytes.MinRead))
	if _, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, limit)); err != nil {
		return nil, bodyError(err, limit)
	}
	return buf.Bytes(), nil
}

func bodyError(err error, limit int64) *openai.Error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return openai.BodyTooLarge(limit)
	}
	e := openai.InvalidJSON("the body could not be read to its end")
	if errors.Is(err, io.ErrUnexpectedEOF) {
		e.Message = "the body is shorter than its Content-Length"
	}
	return e
}
