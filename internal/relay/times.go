package relay

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// Headers in which clients of other routers name what they expect. They pass every tier as they came.
const (
	HeaderRequestTimeout = "X-Request-Timeout-Ms" // when the caller gives up, in milliseconds from arrival
	HeaderSLOTTFT        = "X-Slo-Ttft-Ms"        // when the first token should come, in milliseconds from arrival
	HeaderLLMDSLOTTFT    = "X-Llm-D-Slo-Ttft-Ms"  // as llm-d's clients write it
	HeaderSLOTPOT        = "X-Slo-Tpot-Ms"        // how far apart the tokens after it may come, in milliseconds
	HeaderLLMDSLOTPOT    = "X-Llm-D-Slo-Tpot-Ms"  // as llm-d's clients write it
	maxTimeMS            = 24 * 60 * 60 * 1000    // a day: what is longer is no shorter than that
	timeHint             = ": write whole milliseconds from arrival, from 1 to 2147483647"
	stepHint             = ": write whole milliseconds from one token to the next, from 1 to 2147483647"
)

// Times is when a client wants its answer, from the request's arrival, and how fast. 0 says nothing.
type Times struct {
	// Deadline after which the answer is of no use.
	Deadline time.Duration
	// FirstToken is when it should begin. Being late is no reason to refuse it, but for the class that goes first when there is
	// more to do than can be done: batch requests that cannot begin by then are refused (503), so that others can.
	FirstToken time.Duration
	// Step is how far apart the tokens after the first may come. That nobody can do it is no reason to refuse it either.
	Step time.Duration
}

// timeHeaders are those that are read, and of what they say it.
var timeHeaders = [...]struct {
	name string
	of   func(*Times) *time.Duration
	hint string
}{
	{HeaderClientDeadline, (*Times).deadline, timeHint},
	{HeaderRequestTimeout, (*Times).deadline, timeHint},
	{HeaderSLOTTFT, (*Times).firstToken, timeHint},
	{HeaderLLMDSLOTTFT, (*Times).firstToken, timeHint},
	{HeaderSLOTPOT, (*Times).step, stepHint},
	{HeaderLLMDSLOTPOT, (*Times).step, stepHint},
}

func (t *Times) deadline() *time.Duration   { return &t.Deadline }
func (t *Times) firstToken() *time.Duration { return &t.FirstToken }
func (t *Times) step() *time.Duration       { return &t.Step }

// ReadTimes reads a client's headers. Where several name the same, the soonest holds. It returns a 400 that says what to
// write for a value that cannot be read: a caller whose deadline is passed over would never find out.
func ReadTimes(h http.Header) (t Times, e *openai.Error) {
	for _, f := range timeHeaders {
		for _, text := range h[f.name] {
			ms, err := strconv.ParseUint(text, 10, 31)
			if err != nil || ms == 0 {
				return Times{}, &openai.Error{
					Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: openai.CodeInvalidValue, Param: f.name,
					Message: f.name + f.hint, NoRetry: true,
				}
			}
			dst := f.of(&t)
			if d := time.Duration(min(ms, maxTimeMS)) * time.Millisecond; *dst == 0 || d < *dst {
				*dst = d
			}
		}
	}
	return t, nil
}
