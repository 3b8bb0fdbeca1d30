package uplink

import (
	"errors"

	"github.com/quic-go/quic-go"
)

// What QueryChild may return besides context errors and the child's own answer.
var (
	// ErrNoChild means that no child of that path has a session.
	ErrNoChild = errors.New("no session with that child")
	// ErrStopped means that the Parent or Child is stopped or was never started.
	ErrStopped = errors.New("uplink is not running")
	// ErrTooLarge means that a message exceeds its limit.
	ErrTooLarge = errors.New("message is larger than the limit")
)

// QueryError is a child's error answer to QueryChild.
type QueryError struct{ Message string }

// Error returns the child's text.
func (e *QueryError) Error() string { return "child answered: " + e.Message }

// Why a session was closed, as QUIC application error codes.
const (
	codeShutdown  quic.ApplicationErrorCode = iota // clean stop
	codeReplaced                                   // the same path has a newer session
	codeRefused                                    // the claim does not match the certificate
	codeMalformed                                  // a message that no correct peer sends
	codeVersion                                    // no common version
	codeFull                                       // the parent has its maximum number of children
	codeSilent                                     // the parent receives nothing
	codeFlood                                      // far more messages than a child needs to send
)
