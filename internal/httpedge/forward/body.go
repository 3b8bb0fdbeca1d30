package forward

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

// DefaultBodyTimeout bounds how long a client may take to send a body if nothing else is configured.
const DefaultBodyTimeout = 30 * time.Second

// maxFirstAlloc bounds the allocation made on the basis of a Content-Length alone, in bytes.
const maxFirstAlloc = 1 << 20

// BodyLimits bounds the reading of a request body.
type BodyLimits struct {
	// MaxBytes is the largest body, in bytes.
	MaxBytes int64
	// Timeout bounds the time from the start of the read to the end of the body. 0 means DefaultBodyTimeout.
	Timeout time.Duration
	// Deadline is the deadline of the client; zero: none. A body that is incomplete by then is refused with
	// 504.
	Deadline time.Time
	Tier     string
	// Charge accounts for the memory of the body; nil: not accounted. The caller releases it.
	Charge *BodyCharge
}

// ReadBody is BodyLimits.ReadBody with only a limit in bytes and a timeout.
func ReadBody(w http.ResponseWriter, r *http.Request, limit int64, within time.Duration) ([]byte, *openai.Error) {
	return BodyLimits{MaxBytes: limit, Timeout: within}.ReadBody(w, r)
}

// ReadBody reads the whole body of a request within the limits, so that slow senders cannot hold memory or a
// request slot indefinitely. A body whose Content-Length exceeds the limit is refused before a byte of it is
// read.
func (b BodyLimits) ReadBody(w http.ResponseWriter, r *http.Request) ([]byte, *openai.Error) {
	if r.ContentLength > b.MaxBytes {
		return nil, openai.BodyTooLarge(b.MaxBytes)
	}
	if enc := FirstValue(r.Header, "Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return nil, &openai.Error{
			Status: http.StatusUnsupportedMediaType, Type: openai.TypeInvalidRequest,
			Code: openai.CodeEncoding, Message: "send the body without Content-Encoding", NoRetry: true,
		}
	}
	charge := b.Charge
	if charge == nil {
		charge = &BodyCharge{}
	}
	if !charge.TakeBytes(r.ContentLength) {
		return nil, charge.refuseBody()
	}
	body, err := b.readWithin(w, r, charge)
	if err == nil {
		return body, nil
	}
	charge.ReleaseBytes()
	if errors.Is(err, errBodyMemoryFull) {
		return nil, charge.refuseBody()
	}
	return nil, b.bodyError(err)
}

func (b *BodyLimits) readWithin(w http.ResponseWriter, r *http.Request, charge *BodyCharge) ([]byte, error) {
	rc := http.NewResponseController(w)
	if rc.SetReadDeadline(b.readDeadline(time.Now())) == nil {
		defer func() { _ = rc.SetReadDeadline(time.Time{}) }()
	}
	if r.ContentLength > 0 {
		return readKnownLength(r.Body, int(r.ContentLength))
	}
	var buf bytes.Buffer
	if _, err := buf.ReadFrom(http.MaxBytesReader(w, io.NopCloser(chargedReader{r.Body, charge}), b.MaxBytes)); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// chargeBytes charges n bytes. It returns false if the memory is full.
func (b *BodyLimits) chargeBytes(n int) bool { return b.Charge == nil || b.Charge.TakeBytes(int64(n)) }

// releaseCharge releases the charged bytes.
func (b *BodyLimits) releaseCharge() {
	if b.Charge != nil {
		b.Charge.ReleaseBytes()
	}
}

// timeoutOrDefault returns the timeout, or the default if none is set.
func (b *BodyLimits) timeoutOrDefault() time.Duration {
	if b.Timeout <= 0 {
		return DefaultBodyTimeout
	}
	return b.Timeout
}

// readDeadline returns when a read that begins at now must have ended.
func (b *BodyLimits) readDeadline(now time.Time) time.Time {
	end := now.Add(b.timeoutOrDefault())
	if !b.Deadline.IsZero() && b.Deadline.Before(end) {
		return b.Deadline
	}
	return end
}

// slowBodyError returns the refusal of a body that is incomplete at now.
func (b *BodyLimits) slowBodyError(now time.Time) *openai.Error {
	if !b.Deadline.IsZero() && !now.Before(b.Deadline) {
		return openai.DeadlineUnmeetable(b.Tier)
	}
	return openai.BodyTooSlow(b.timeoutOrDefault())
}

// readKnownLength reads a body of n bytes and its end. The buffer grows with the received bytes, to n at most.
func readKnownLength(r io.Reader, n int) ([]byte, error) {
	buf := make([]byte, min(n, maxFirstAlloc)+1)
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

// bodyError returns the error for a body that could not be read.
func (b *BodyLimits) bodyError(err error) *openai.Error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return openai.BodyTooLarge(b.MaxBytes)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return b.slowBodyError(time.Now())
	}
	e := openai.InvalidJSON("the body could not be read to its end")
	if errors.Is(err, io.ErrUnexpectedEOF) {
		e.Message = "the body is shorter than its Content-Length"
	}
	return e
}

// chargedReader is a body of unknown length, charged as it is read.
type chargedReader struct {
	io.Reader
	charge *BodyCharge
}

// Read implements io.Reader.
func (r chargedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if !r.charge.TakeBytes(int64(n)) {
		return 0, errBodyMemoryFull
	}
	return n, err
}
