package relay

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// Observer sees an answer's body pass. It must not keep the slice.
type Observer interface {
	Chunk(p []byte)
}

// HeadObserver is an Observer that also sees the answer's head before it is written: resp as it came, Spillway-* headers
// included, and out, the header for the client, which it may change.
type HeadObserver interface {
	Head(resp *http.Response, out http.Header)
}

// HoldObserver is an Observer that is told while an answer waits for its client: from when something is written to it until
// it has taken that. What the place below has sent meanwhile is not seen.
type HoldObserver interface {
	Held(on bool)
}

// GivenUp reports whether the caller gave the place up, or it was silent for too long.
func (r *Result) GivenUp() bool { return errors.Is(r.Err, ErrGivenUp) }

// Result is how one forward went.
type Result struct {
	// Status of the answer; 0 when none came.
	Status int
	// Started: something reached the client, so nothing may be tried again.
	Started bool
	// NotStarted: the place below said that it began no work. Refused holds its answer.
	NotStarted bool
	// Retryable: nothing reached the client, and another place may be tried.
	Retryable bool
	// ClientGone: the client left or stopped reading.
	ClientGone bool
	// Late: the client's own deadline ended it, and nobody is to blame.
	Late bool
	// Outrun: another attempt answered the client, and this one was cancelled before it wrote anything.
	Outrun bool
	// Truncated: the answer broke off after it had begun. A stream of events was ended with an error event; for any
	// other answer the handler must call Abort, so that the client cannot take the part for the whole.
	Truncated bool
	// Cut: it was truncated, and the client was told nothing of that: its stream of events can be resumed. The caller must do
	// so, by another forward with the same seam, or call Break.
	Cut bool
	// Events: the answer is a stream of server-sent events.
	Events bool
	// Err says what went wrong; nil when the answer passed whole.
	Err error
	// Answered: the place answered, and Err says why its answer was not relayed or not to its end. No connection failed.
	Answered bool
	// Failure is the error event with which an engine ended its stream; nil when none did. It was not relayed.
	Failure []byte
	// Refused is an answer that was not relayed, kept for when no other place can be tried: one with HeaderNotStarted, one
	// that the kind of request does not allow, or one by which an overloaded worker refuses (Forwarder.Overloads).
	Refused *Refusal
	// Denied is what a message of a call was refused for (Replay.Judge); the worker is not to blame. The caller answers with it
	// where nothing was Started.
	Denied *openai.Error
	// FirstByte is when the first byte of the body came, Done when Forward ended.
	FirstByte, Done time.Time
	// Bytes of body that were relayed.
	Bytes int64
	// BytesIn is what a tunnel carried from the client to the worker.
	BytesIn int64
	// Followed: the stream goes on, and how it went is told later (Options.Later). Nothing else of the Result is of use.
	Followed bool
	// Ended is what ended a tunnel: client, worker, idle, age or stopped. Empty for what is none.
	Ended string
}

// Abort ends a handler whose answer broke off, by closing the client's connection.
func Abort() { panic(http.ErrAbortHandler) }

// Refusal is an answer that was not relayed.
type Refusal struct {
	Status int
	Header http.Header
	Body   []byte
}

// maxRefusal bounds a refusal's body, in bytes.
const maxRefusal = 64 << 10

// Write sends the refusal to the client after all. keepMark keeps HeaderNotStarted, for a caller that is itself a tier.
func (f *Refusal) Write(w http.ResponseWriter, keepMark bool) {
	h := w.Header()
	pass(h, f.Header, nil)
	h.Set("Content-Length", strconv.Itoa(len(f.Body)))
	if keepMark {
		h.Set(HeaderNotStarted, "1")
	}
	w.WriteHeader(f.Status)
	_, _ = w.Write(f.Body) // a caller that has left needs no answer
}
