package forward

import (
	"errors"
	"net/http"
	"strconv"
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
func (r *ForwardResult) IsGivenUp() bool { return errors.Is(r.Err, ErrGivenUp) }

// ForwardResult is the result of one forward.
type ForwardResult struct {
	// Status is the status of the response; 0 if none came.
	Status int
	// Started: part of the response reached the client, so no retry is possible.
	Started bool
	// NotStarted: the endpoint reported that it began no work. Refusal holds its response.
	NotStarted bool
	// Retryable: nothing reached the client, and another endpoint may be tried.
	Retryable bool
	// ClientGone: the client disconnected or stopped reading.
	ClientGone bool
	// DeadlinePassed: the client's own deadline ended it; no component is at fault.
	DeadlinePassed bool
	// LostRace: another attempt responded to the client, and this one was cancelled before it wrote anything.
	LostRace bool
	// Truncated: the response broke off after it had begun. An event stream was ended with an error event. For
	// any other response the handler must call AbortHandler, so that the client does not take the part for the
	// whole.
	Truncated bool
	// Interrupted: the response was truncated without notice to the client, because its event stream can be
	// resumed. The caller must resume it by another forward with the same splicer, or call WriteBreak.
	Interrupted bool
	// IsEventStream: the response is a stream of server-sent events.
	IsEventStream bool
	// Err is the failure; nil if the response was relayed completely.
	Err error
	// Answered: the endpoint responded, and Err is why its response was not relayed or not to its end. No
	// connection failed.
	Answered bool
	// ErrorEvent is the error event with which an engine ended its stream; nil if there was none. It was not
	// relayed.
	ErrorEvent []byte
	// Refusal is a response that was not relayed, kept in case no other endpoint can be tried: one with
	// HeaderNotStarted, one that the kind of request does not allow, or the refusal of an overloaded worker
	// (Forwarder.ReturnOverloads).
	Refusal *Refusal
	// MessageRefusal is the error of a refused message of a call (ReplayBody.CheckMessages); the worker is not
	// at fault. The caller responds with it if Started is not set.
	MessageRefusal *openai.Error
	// FirstByteAt is when the first byte of the body arrived, DoneAt when the forward ended.
	FirstByteAt, DoneAt time.Time
	// BytesOut is the number of body bytes relayed.
	BytesOut int64
	// BytesIn is the number of bytes that a tunnel carried from the client to the worker.
	BytesIn int64
	// Detached: the stream continues, and its result is reported later (ForwardOptions.OnDetachedEnd). The
	// other fields are then meaningless.
	Detached bool
	// TunnelEnd is what ended a tunnel: client, worker, idle, age or stopped. Empty if the forward is not a
	// tunnel.
	TunnelEnd string
}

// AbortHandler ends a handler whose response broke off, by closing the client's connection.
func AbortHandler() { panic(http.ErrAbortHandler) }

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
