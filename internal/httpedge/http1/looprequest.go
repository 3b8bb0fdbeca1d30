package http1

import (
	"context"
	"net"
	"net/http"
	"time"
)

// LoopConfig configures the request loop of a Server.
type LoopConfig struct {
	// Handler is the logic of the requests.
	Handler LoopHandler
	// Dial connects to an upstream, on its own goroutine.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// MaxConns bounds the connections of the loop: the one that was idle longest is closed for one more. 0: no bound.
	MaxConns int
	// WriteTimeout bounds how long a client may take to receive what was written for it.
	WriteTimeout time.Duration
	// AnswerTimeout bounds the silence of an upstream before and during its answer; ErrSilent is the cause then.
	AnswerTimeout time.Duration
	// OnHandOver is called for each request that leaves the loop, and OnComplete for each that it served to its end.
	OnHandOver func(LoopExit)
	OnComplete func()
}

// LoopExit is why a request leaves the loop.
type LoopExit string

// The reasons. They are label values of a metric.
const (
	ExitSyntax   LoopExit = "syntax"   // the head is not in the plain syntax, or the body is large or arrives late
	ExitDeclined LoopExit = "declined" // the handler leaves the request to the http.Handler
	ExitDecided  LoopExit = "decided"  // the handler has begun the request; it must wait, is refused, or needs a second attempt
	ExitUnsent   LoopExit = "unsent"   // the upstream could not be dialled, or did not take the whole request
	ExitAnswer   LoopExit = "answer"   // the answer has not begun as the loop relays it, or the connection ended before it
	ExitBroken   LoopExit = "broken"   // the answer broke off
	ExitClient   LoopExit = "client"   // the client has left
	ExitAborted  LoopExit = "aborted"  // the handler gave the attempt up, or the upstream was silent for too long
)

// LoopAction is what a LoopHandler decides about a request.
type LoopAction int

const (
	// LoopDecline leaves the request to the http.Handler of the server. Nothing about it may have been recorded.
	LoopDecline LoopAction = iota
	// LoopSend sends LoopRequest.Out to LoopRequest.Upstream.
	LoopSend
	// LoopContinue calls LoopExchange.Continue on a goroutine at once.
	LoopContinue
	// LoopWait keeps the request until LoopRef.Wake, which has LoopExchange.Resume decide again. At LoopRequest.WaitUntil,
	// or if the client leaves, Continue takes it over.
	LoopWait
)

// LoopHandler is the logic of a request loop. Its methods, and those of LoopExchange except Continue, are called on the
// loop. They must not block: all other requests wait meanwhile.
type LoopHandler interface {
	// StartRequest decides about a complete request.
	StartRequest(r *LoopRequest) (LoopExchange, LoopAction)
}

// LoopRequest is a complete request. It and its slices are valid until StartRequest returns, except Body: that is valid
// until the exchange ends.
type LoopRequest struct {
	Path  []byte
	Lines []HeadLine
	Body  []byte
	// Now is the time of the event that completed the request.
	Now time.Time

	// Upstream is the address, and Out the request to it, with LoopSend.
	Upstream string
	Out      []byte
	// WaitUntil ends the wait with LoopWait; zero: never.
	WaitUntil time.Time

	client *loopClient
}

// LoopAnswer is the head of an answer.
type LoopAnswer struct {
	Status        int
	Lines         []HeadLine
	ContentLength int64 // -1: chunked
	Now           time.Time
}

// LoopExchange is one request of a loop.
type LoopExchange interface {
	// Resume decides again about a request that waits. r has no request in it.
	Resume(r *LoopRequest) LoopAction
	// AcceptAnswer appends the head for the client to out, without its framing lines and the empty line. keepsLength
	// means that the body is passed in its length. False leaves the answer to Continue. It may be called twice with the
	// same head.
	AcceptAnswer(a *LoopAnswer, out []byte) (_ []byte, keepsLength, ok bool)
	// PassChunk receives a piece of the body and returns what goes to the client, valid until the next call. False ends
	// the answer as broken.
	PassChunk(p []byte, now time.Time) ([]byte, bool)
	// EndBody is called after the last piece. It returns what is left for the client. False ends the answer as broken.
	EndBody() ([]byte, bool)
	// Complete ends an exchange whose answer is complete. Nothing of it is used afterwards.
	Complete(now time.Time)
	// SetClientBlocked reports whether the answer waits for its client to read.
	SetClientBlocked(on bool)
	// Continue takes the request over, in place of the http.Handler. It may block. The loop does not use the exchange any
	// more.
	Continue(w http.ResponseWriter, r *http.Request, at HandOver)
}

// HandOver is how far a request has come on the loop.
type HandOver struct {
	// Sent is the request as it was sent, whose answer has not begun: RoundTripSent continues it. Nil if none was sent or
	// if the answer has begun.
	Sent *SentRequest
	// Begun means that the head of the answer was written to the client.
	Begun bool
	// Err is what ended an answer that had begun. ErrAborted: the handler knows why.
	Err error
}

// LoopRef names one request of a loop to other goroutines.
type LoopRef struct {
	client *loopClient
	turn   uint64
}

// Ref returns the reference of the request.
func (r *LoopRequest) Ref() LoopRef { return r.client.currentRef() }

// Abort gives the attempt up: the loop calls Continue with ErrAborted or an aborted SentRequest. It has no effect on a
// request that has left the loop. It may be called on any goroutine, at any time.
func (r LoopRef) Abort() {
	if r.client != nil {
		r.client.abortTurn(r.turn)
	}
}

// Wake has the loop call Resume if the request still waits. It may be called on any goroutine, at any time.
func (r LoopRef) Wake() {
	if r.client != nil {
		r.client.wakeTurn(r.turn)
	}
}

// OwnBody moves the body into memory of its own, for an answer that takes long: the buffer of the loop is reused.
func (r *LoopRequest) OwnBody() []byte {
	r.Body = r.client.splitBody(r.Body)
	return r.Body
}
