package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Outcome is how a forward ended. Result adds two facts that an outcome does not decide: whether part of the
// response reached the client, and whether the endpoint reported that it began no work.
type Outcome uint8

// The outcomes. After Unanswered, Refused and NotContinued another endpoint may be tried.
const (
	// NotForwarded: the request could not be built, or the connection of the client could not be taken over.
	NotForwarded Outcome = iota
	// Completed: the response was relayed to its end.
	Completed
	// Unanswered: no response came, or it broke off before the first byte of its body.
	Unanswered
	// Refused: the endpoint began no work (Result.NoWorkBegun) or is overloaded (Forwarder.ReturnOverloads).
	// Result.Refusal is its response.
	Refused
	// NotContinued: the endpoint responded, but not with the rest of the stream (Options.Continuing).
	NotContinued
	// Unsupported: the response is not of the kind of the request: it is not gRPC, or does not accept the
	// upgrade. Result.Refusal is the response.
	Unsupported
	// BrokenOff: the response broke off after it had begun, and its client cannot notice. The handler must call
	// AbortHandler, so that the client does not take the part for the whole.
	BrokenOff
	// StreamBroken: the response broke off after it had begun, and was ended with an error event or a gRPC
	// status.
	StreamBroken
	// Interrupted: an event stream broke off without notice to the client, because it can be resumed. The
	// caller must resume it by another forward with the same splicer, or call WriteBreak.
	Interrupted
	// LostRace: another attempt responds to the client, and this one ended before it wrote anything.
	LostRace
	// ClientGone: the client disconnected or stopped reading, its request body broke off before the response
	// began, or one of its messages was refused (Result.MessageRefusal).
	ClientGone
	// RequestBroken: the request body broke off, or a message of it was refused, and with it the response,
	// which had begun. It was ended with a gRPC status.
	RequestBroken
	// DeadlinePassed: the client's own deadline ended the call. A response that had begun was ended with a gRPC
	// status.
	DeadlinePassed
	// Detached: the stream continues, and its result is reported later (Options.OnDetachedEnd). The other
	// fields of this Result are meaningless.
	Detached
)

var outcomeNames = [...]string{
	NotForwarded: "not forwarded", Completed: "completed", Unanswered: "unanswered", Refused: "refused", NotContinued: "not continued",
	Unsupported: "unsupported", BrokenOff: "broken off", StreamBroken: "stream broken", Interrupted: "interrupted", LostRace: "lost race",
	ClientGone: "client gone", RequestBroken: "request broken", DeadlinePassed: "deadline passed", Detached: "detached",
}

// String returns the outcome in words.
func (o Outcome) String() string { return outcomeNames[o] }

// MayRetry reports whether another endpoint may be tried: nothing reached the client, and the client waits.
func (o Outcome) MayRetry() bool { return o == Unanswered || o == Refused || o == NotContinued }

// IsClientGone reports whether the client ended the request.
func (o Outcome) IsClientGone() bool { return o == ClientGone || o == RequestBroken }

// IsTruncated reports whether the response broke off after it had begun, for another reason than that its client
// stopped reading.
func (r *Result) IsTruncated() bool {
	switch r.Outcome {
	case BrokenOff, StreamBroken, Interrupted, RequestBroken:
		return true
	case DeadlinePassed:
		return r.ReachedClient
	}
	return false
}

// AbortHandler ends a handler whose response broke off, by closing the client's connection.
func AbortHandler() { panic(http.ErrAbortHandler) }

// blameClient records that the client ended the request. A response that its client cannot tell from a complete
// one stays BrokenOff.
func (r *Result) blameClient() {
	switch {
	case r.Outcome == BrokenOff:
	case r.IsTruncated():
		r.Outcome = RequestBroken
	default:
		r.Outcome = ClientGone
	}
}

// recordDeadline records that the client's own deadline caused the failure: no component is at fault, and a
// retry is useless.
func (r *Result) recordDeadline() {
	if r.Err = ErrClientDeadline; r.Outcome != BrokenOff {
		r.Outcome = DeadlinePassed
	}
}

// recordLostRace records that another attempt responds to the client.
func (r *Result) recordLostRace() {
	r.Outcome, r.Err = LostRace, ErrLostRace
}

// recordNotContinued records that an endpoint refused to continue a stream. Another may continue it.
func (r *Result) recordNotContinued(status int) {
	r.Outcome, r.Err = NotContinued, fmt.Errorf("the endpoint refused to continue the response: status %d", status)
}

// recordNoAnswer records that no response came. The endpoint is at fault unless the client has gone.
func (r *Result) recordNoAnswer(ctx context.Context, err error) {
	r.Outcome = Unanswered
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrLostRace):
		r.recordLostRace()
		return
	case errors.Is(cause, ErrGivenUp):
		err = cause
	case ctx.Err() != nil && !IsPastDeadline(ctx):
		r.Outcome = ClientGone
	}
	r.Err = fmt.Errorf("forwarding the request: %w", err)
}

// recordRefusal stores a response that reports that no work was begun.
func (r *Result) recordRefusal(resp *http.Response) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusalBytes))
	if err != nil {
		body = nil
	}
	r.Outcome, r.NoWorkBegun = Refused, true
	r.Refusal = &Refusal{Status: resp.StatusCode, Header: resp.Header, Body: body}
	r.Err = fmt.Errorf("refused with status %d before any work was begun", resp.StatusCode)
}

// recordOverload stores the refusal of an overloaded worker.
func (r *Result) recordOverload(resp *http.Response) {
	r.recordRefusal(resp)
	r.NoWorkBegun = false
	r.Err = fmt.Errorf("the worker refused with status %d", resp.StatusCode)
}

// recordMessageRefusal records that a message of the client was refused: the client is at fault, and a retry is
// useless.
func (r *Result) recordMessageRefusal(body io.ReadCloser) {
	if r.MessageRefusal = messageRefusalOf(body); r.MessageRefusal != nil && r.Err != nil {
		r.blameClient()
		r.Refusal = nil
	}
}
