package uplink

import (
	"errors"

	"github.com/quic-go/quic-go"
)

// What Ask may return besides context errors and the child's own answer.
var (
	// ErrNoChild means that no child of that path has a session.
	ErrNoChild = errors.New("no session with that child")
	// ErrStopped means that the Parent or Child is stopped or was never started.
	ErrStopped = errors.New("uplink is not running")
	// ErrTooLarge means that a message exceeds its limit.
	ErrTooLarge = errors.New("message is larger than the limit")
)

// AnswerError is the error that a child answered an Ask with.
type AnswerError struct{ Message string }

// Error is the child's own text.
func (e *AnswerError) Error() string { return "child answered: " + e.Message }

// Why a session was closed, as QUIC application error codes.
const (
	codeBye      quic.ApplicationErrorCode = iota // stopping in good order
	codeReplaced                                  // the same path has a newer session
	codeRefused                                   // the claim does not match the certificate
	codeRubbish                                   // a message that no honest peer sends
	codeVersion                                   // no common version
	codeFull                                      // the parent has all the children it takes
	codeSilent                                    // the parent hears nothing
	codeFlood                                     // far more messages than a child has to send
)
