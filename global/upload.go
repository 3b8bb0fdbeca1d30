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

// upload is a client's body on its way. At most maxPeek of it are held. The transport reads it in a goroutine of its own,
// which may outlive the answer: after stop it reads nothing more.
type upload struct {
	rc     *http.ResponseController
	src    io.Reader // what was peeked at, then the rest
	length int64     // -1: not known
	limit  int64

	mu      sync.Mutex // held while the source is read
	left    int64
	started bool
	stopped bool
	failed  error
}

// errBodyTooLarge and errStopped end the transport's reading.
var (
	errBodyTooLarge = errors.New("the body is longer than is allowed")
	errStopped      = errors.New("the request has been answered")
)

// receive prepares a body: a small one is read whole to learn the model, a longer one not at all.
func receive(w http.ResponseWriter, r *http.Request, limit int64) (up *upload, model string, fail *openai.Error) {
	if limit <= 0 {
		limit = defaultMaxBody
	}
	u := &upload{rc: http.NewResponseController(w), src: r.Body, length: r.ContentLength, limit: limit, left: limit}
	switch {
	case r.ContentLength > limit:
		return nil, "", openai.BodyTooLarge(limit)
	case r.Body == nil || r.ContentLength == 0:
		u.length = 0
		u.wait(maxPassage)
	case r.ContentLength > 0 && r.ContentLength <= maxPeek:
		u.wait(bodySilence)
		held, err := io.ReadAll(io.LimitReader(r.Body, r.ContentLength))
		if err != nil || int64(len(held)) < r.ContentLength {
			return nil, "", openai.BodyTooSlow(bodySilence)
		}
		u.wait(maxPassage)
		u.src, model = io.MultiReader(bytes.NewReader(held), r.Body), readModel(r, held)
		return u, model, nil
	}
	return u, readModel(r, nil), nil
}

// defaultMaxBody bounds bodies where the spec does not.
const defaultMaxBody = 8 << 20

// body is what the transport is given; nil for none.
func (u *upload) body() io.Reader {
	if u.length == 0 {
		return nil
	}
	return u
}

// Read is the transport's.
func (u *upload) Read(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.stopped {
		return 0, errStopped
	}
	u.started = true
	u.wait(bodySilence)
	n, err := u.src.Read(p)
	if u.left -= int64(n); u.left < 0 {
		u.failed = errBodyTooLarge
		return 0, errBodyTooLarge
	}
	switch {
	case err == io.EOF:
		u.wait(maxPassage) // else the server takes the silence after the body for a client that left
	case err != nil:
		u.failed = err
	}
	return n, err
}

// wait sets how long the client may be silent.
func (u *upload) wait(d time.Duration) {
	_ = u.rc.SetReadDeadline(time.Now().Add(d)) // a writer without deadlines is a test's
}

// begun says that some of the body has gone on: it cannot be sent again.
func (u *upload) begun() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.started
}

// stop ends the transport's reading, and says what the client's own fault was.
func (u *upload) stop() *openai.Error {
	if !u.mu.TryLock() {
		_ = u.rc.SetReadDeadline(time.Now()) // wakes a read that waits for the client
		u.mu.Lock()
	}
	defer u.mu.Unlock()
	u.stopped = true
	switch {
	case u.failed == nil:
		return nil
	case errors.Is(u.failed, errBodyTooLarge):
		return openai.BodyTooLarge(u.limit)
	case errors.Is(u.failed, os.ErrDeadlineExceeded):
		return openai.BodyTooSlow(bodySilence)
	}
	return openai.InvalidJSON("the body broke off")
}
