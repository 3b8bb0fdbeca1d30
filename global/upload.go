package global

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// upload is a client's request body in transfer. At most maxModelPeekBytes of it are buffered. The transport reads it
// in its own goroutine, which may outlive the answer; after stopReading it reads nothing more.
type upload struct {
	controller *http.ResponseController
	source     io.Reader // the peeked bytes, then the rest
	length     int64     // -1: unknown
	limit      int64

	mu        sync.Mutex // held while the source is read
	bytesLeft int64
	started   bool
	stopped   bool
	failure   error
}

// errBodyTooLarge and errStopped end the transport's reading.
var (
	errBodyTooLarge = errors.New("the body exceeds routing.max_body")
	errStopped      = errors.New("the request has been answered")
)

// receiveBody prepares a body: a small one is read completely to find the model, a longer one is not read.
func receiveBody(w http.ResponseWriter, r *http.Request, limit int64) (up *upload, model string, fail *openai.Error) {
	if limit <= 0 {
		limit = defaultMaxBody
	}
	u := &upload{controller: http.NewResponseController(w), source: r.Body, length: r.ContentLength, limit: limit, bytesLeft: limit}
	switch {
	case r.ContentLength > limit:
		return nil, "", openai.BodyTooLarge(limit)
	case r.Body == nil || r.ContentLength == 0:
		u.length = 0
		u.setReadTimeout(maxProxyTime)
	case r.ContentLength > 0 && r.ContentLength <= maxModelPeekBytes:
		u.setReadTimeout(bodyIdleTimeout)
		held, err := io.ReadAll(io.LimitReader(r.Body, r.ContentLength))
		if err != nil || int64(len(held)) < r.ContentLength {
			return nil, "", openai.BodyTooSlow(bodyIdleTimeout)
		}
		u.setReadTimeout(maxProxyTime)
		u.source, model = io.MultiReader(bytes.NewReader(held), r.Body), readModel(r, held)
		return u, model, nil
	}
	return u, readModel(r, nil), nil
}

// defaultMaxBody bounds bodies if the spec does not.
const defaultMaxBody = 8 << 20

// bodyReader returns the reader for the transport; nil for an empty body.
func (u *upload) bodyReader() io.Reader {
	if u.length == 0 {
		return nil
	}
	return u
}

// Read implements io.Reader for the transport.
func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stopped {
		return 0, errStopped
	}
	u.started = true
	u.setReadTimeout(bodyIdleTimeout)
	n, err := u.source.Read(p)
	if u.bytesLeft -= int64(n); u.bytesLeft < 0 {
		u.failure = errBodyTooLarge
		return 0, errBodyTooLarge
	}
	switch {
	case err == io.EOF:
		u.setReadTimeout(maxProxyTime) // otherwise the server treats the silence after the body as a disconnect
	case err != nil:
		u.failure = err
	}
	return n, err
}

// setReadTimeout sets how long the client may be silent.
func (u *upload) setReadTimeout(d time.Duration) {
	_ = u.controller.SetReadDeadline(time.Now().Add(d)) // only test writers have no deadlines
}

// hasBegun reports whether part of the body was forwarded: such a request cannot be retried.
func (u *upload) hasBegun() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.started
}

// stopReading ends the transport's reading and returns the client's own error, if any.
func (u *upload) stopReading() *openai.Error {
	if !u.mu.TryLock() {
		_ = u.controller.SetReadDeadline(time.Now()) // wakes a read that waits for the client
		u.mu.Lock()
	}
	defer u.mu.Unlock()
	u.stopped = true
	switch {
	case u.failure == nil:
		return nil
	case errors.Is(u.failure, errBodyTooLarge):
		return openai.BodyTooLarge(u.limit)
	case errors.Is(u.failure, os.ErrDeadlineExceeded):
		return openai.BodyTooSlow(bodyIdleTimeout)
	}
	return openai.InvalidJSON("the body broke off")
}
