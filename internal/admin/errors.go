package admin

import "net/http"

// Error is the answer to a failed call: what happened and what to do.
type Error struct {
	Status  int    `json:"-"` // HTTP status
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	// Unknown reports that the change may have been made, or may still be made.
	Unknown bool `json:"unknown_outcome,omitempty"`
}

// Error returns the message, with the hint if there is one.
func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "\nhint: " + e.Hint
}

// BadRequestError refuses an invalid call.
func BadRequestError(message, hint string) *Error {
	return &Error{Status: http.StatusBadRequest, Message: message, Hint: hint}
}

// ConflictError refuses a change that conflicts with the current state.
func ConflictError(message, hint string) *Error {
	return &Error{Status: http.StatusConflict, Message: message, Hint: hint}
}

// UnknownOutcomeError reports a change that was sent to the leader and may or may not have been made.
func UnknownOutcomeError(message string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Message: message, Unknown: true}
}

// UnavailableError refuses a call that may succeed later.
func UnavailableError(message, hint string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Message: message, Hint: hint}
}
