package forward

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// Observer receives the body of a response as it is relayed. It must not keep the slice.
type Observer interface {
	AddChunk(p []byte)
}

// HeadObserver is an Observer that also receives the head before it is written: resp as received, including
// Spillway-* headers, and out, the header for the client, which it may change.
type HeadObserver interface {
	EditHead(resp *http.Response, out http.Header)
}

// BackpressureObserver is an Observer that is notified while a response waits for its client: from a write
// until the client has received it. Bytes that the endpoint sends meanwhile are not observed.
type BackpressureObserver interface {
	SetClientBlocked(on bool)
}

// IsGivenUp reports whether the caller gave the endpoint up, or the endpoint was silent for too long.
func (r *Result) IsGivenUp() bool { return errors.Is(r.Err, ErrGivenUp) }

// Result is the result of one forward.
type Result struct {
	// Outcome is how the forward ended.
	Outcome Outcome
	// ReachedClient: part of the response was written to the client, so no other endpoint can be tried.
	ReachedClient bool
	// NoWorkBegun: the endpoint reported that it began no work (HeaderNotStarted).
	NoWorkBegun bool
	// Status is the status of the response; 0 if none came.
	Status int
	// Err is the failure; nil if the response was relayed completely, or a tunnel was open until its end.
	Err error
	// ErrorEvent is the error event with which an engine ended its stream; nil if there was none. It was not
	// relayed.
	ErrorEvent []byte
	// Refusal is a response that was not relayed, kept in case no other endpoint can be tried. See Refused and
	// Unsupported.
	Refusal *Refusal
	// MessageRefusal is the error of a refused message of a call (ReplayBody.CheckMessages); the worker is not
	// at fault. The caller responds with it if ReachedClient is not set.
	MessageRefusal *openai.Error
	// FirstByteAt is when the first byte of the body arrived, DoneAt when the forward ended.
	FirstByteAt, DoneAt time.Time
	// BytesOut is the number of body bytes relayed.
	BytesOut int64
	// BytesIn is the number of bytes that a tunnel carried from the client to the worker.
	BytesIn int64
	// TunnelEnd is what ended a tunnel: client, worker, idle, age or stopped. Empty if the forward is not a
	// tunnel.
	TunnelEnd string
}

// Refusal is a response that was not relayed.
type Refusal struct {
	Status int
	Header http.Header
	Body   []byte
}

// maxRefusalBytes bounds the body of a refusal, in bytes.
const maxRefusalBytes = 64 << 10

// WriteAnswer sends the refusal to the client. keepMark keeps HeaderNotStarted, for a caller that is itself a
// tier.
func (f *Refusal) WriteAnswer(w http.ResponseWriter, keepMark bool) {
	h := w.Header()
	copyHeaders(h, f.Header, nil)
	h.Set("Content-Length", strconv.Itoa(len(f.Body)))
	if keepMark {
		h.Set(HeaderNotStarted, "1")
	}
	w.WriteHeader(f.Status)
	_, _ = w.Write(f.Body) // the client may be gone
}

// AsOpenAIError returns the refusal as an error: parsed if it has OpenAI's shape, else by its status.
func (f *Refusal) AsOpenAIError() *openai.Error {
	if e := openai.ParseError(f.Status, f.Body); e != nil && strings.HasPrefix(f.Header.Get("Content-Type"), "application/json") {
		return e
	}
	return openai.UpstreamFailed("the worker answered with status " + strconv.Itoa(f.Status) + ", which is not a gRPC response")
}
