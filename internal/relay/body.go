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

// BodyBounds are what a caller may take to send a request's body.
type BodyBounds struct {
	// Limit is in bytes.
	Limit int64
	// Within bounds the time from the beginning of the read to the end of the body. 0 means DefaultBodyTimeout.
	Within time.Duration
	// By is the caller's own deadline; zero: none. A body that is not there by then is refused by Tier with 504.
	By   time.Time
	Tier string
	// Charge pays for the memory that the body takes; nil: nobody counts it. It is the caller's to release.
	Charge *BodyCharge
}

// ReadBody is BodyBounds.Read with a limit in bytes and in time alone.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) ([]byte, *openai.Error) {
	return BodyBounds{Limit: limit, Within: within}.Read(w, r)
}

// Read reads a request's whole body within the bounds, so that slow senders hold neither memory nor a place for ever. A body
// that says it is larger is refused before a byte of it is read.
func (b BodyBounds) Read(w http.ResponseWriter, r *http.Request) ([]byte, *openai.Error) {
	if r.ContentLength > b.Limit {
		return nil, openai.BodyTooLarge(b.Limit)
	}
	if enc := First(r.Header, "Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, &openai.Error{
			Status: http.StatusUnsupportedMediaType, Type: openai.TypeInvalidRequest,
			Code: openai.CodeEncoding, Message: "send the body without Content-Encoding", NoRetry: true,
		}
	}
	charge := b.Charge
	if charge == nil {
		charge = &BodyCharge{}
	}
	if !charge.Take(r.ContentLength) {
		return nil, charge.refuse()
	}
	body, err := b.read(w, r, charge)
	if err == nil {
		return body, nil
	}
	charge.Release()
	if errors.Is(err, errBodyMemory) {
		return nil, charge.refuse()
	}
	return nil, b.refusal(err)
}

func (b *BodyBounds) read(w http.ResponseWriter, r *http.Request, charge *BodyCharge) ([]byte, error) {
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(b.end(time.Now())) == nil {
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	}
	if r.ContentLength > 0 {
		return readKnown(r.Body, int(r.ContentLength))
	}
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(http.MaxBytesReader(w, io.NopCloser(charged{r.Body, charge}), b.Limit)); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// charge pays for n bytes that are kept; false when there is no room.
func (b *BodyBounds) charge(n int) bool { return b.Charge == nil || b.Charge.Take(int64(n)) }

// release gives back what was paid for.
func (b *BodyBounds) release() {
	if b.Charge != nil {
		b.Charge.Release()
	}
}

// within is the time bound, the default where none is set.
func (b *BodyBounds) within() time.Duration {
	if b.Within <= 0 {
		return DefaultBodyTimeout
	}
	return b.Within
}

// end is when a read that begins at now must have ended.
func (b *BodyBounds) end(now time.Time) time.Time {
	end := now.Add(b.within())
	if !b.By.IsZero() && b.By.Before(end) {
		return b.By
	}
	return end
}

// tooSlow refuses a body that is not there at now.
func (b *BodyBounds) tooSlow(now time.Time) *openai.Error {
	if !b.By.IsZero() && !now.Before(b.By) {
		return openai.DeadlineUnmeetable(b.Tier)
	}
	return openai.BodyTooSlow(b.within())
}

// readKnown reads a body of n bytes, and its end. Room is made as the bytes come, and never for more than n.
func readKnown(r io.Reader, n int) ([]byte, error) {
	buf := make([]byte, min(n, firstAlloc)+1)
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
		if have == len(buf) && have <= n {
			buf = append(make([]byte, 0, min(2*have, n+1)), buf...)
			buf = buf[:cap(buf)]
		}
	}
}

// refusal is the answer to a body that could not be read.
func (b *BodyBounds) refusal(err error) *openai.Error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return openai.BodyTooLarge(b.Limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return b.tooSlow(time.Now())
	}
	e := openai.InvalidJSON("the body could not be read to its end")
	if errors.Is(err, io.ErrUnexpectedEOF) {
		e.Message = "the body is shorter than its Content-Length"
	}
	return e
}
