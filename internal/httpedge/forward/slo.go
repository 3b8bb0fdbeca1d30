package forward

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

// Headers in which clients of other routers set SLOs and timeouts. All tiers forward them unchanged.
const (
	HeaderRequestTimeout = "X-Request-Timeout-Ms" // when the client gives up, in milliseconds from arrival
	HeaderSLOTTFT        = "X-Slo-Ttft-Ms"        // target for the first token, in milliseconds from arrival
	HeaderLLMDSLOTTFT    = "X-Llm-D-Slo-Ttft-Ms"  // llm-d's name
	HeaderSLOTPOT        = "X-Slo-Tpot-Ms"        // target for the interval between later tokens, in milliseconds
	HeaderLLMDSLOTPOT    = "X-Llm-D-Slo-Tpot-Ms"  // llm-d's name
	maxSLOMillis         = 24 * 60 * 60 * 1000    // one day: longer values mean the same
	deadlineHint         = ": write whole milliseconds from arrival, from 1 to 2147483647"
	tpotHint             = ": write whole milliseconds from one token to the next, from 1 to 2147483647"
)

// RequestSLO is what a client expects of its response. Times count from the arrival of the request; 0 means not
// set.
type RequestSLO struct {
	// Deadline is the time after which the response is useless.
	Deadline time.Duration
	// TTFT is the target for the first token. A request that would miss it is not refused, except in the class
	// that is shed first under overload: batch requests that cannot begin in time are refused (503) in favour
	// of others.
	TTFT time.Duration
	// TPOT is the target for the interval between later tokens. A request that would miss it is not refused.
	TPOT time.Duration
}

// sloHeaders are the headers that are read, and the field that each sets.
var sloHeaders = [...]struct {
	name string
	of   func(*RequestSLO) *time.Duration
	hint string
}{
	{HeaderClientDeadline, (*RequestSLO).deadlineField, deadlineHint},
	{HeaderRequestTimeout, (*RequestSLO).deadlineField, deadlineHint},
	{HeaderSLOTTFT, (*RequestSLO).ttftField, deadlineHint},
	{HeaderLLMDSLOTTFT, (*RequestSLO).ttftField, deadlineHint},
	{HeaderSLOTPOT, (*RequestSLO).tpotField, tpotHint},
	{HeaderLLMDSLOTPOT, (*RequestSLO).tpotField, tpotHint},
}

func (t *RequestSLO) deadlineField() *time.Duration { return &t.Deadline }
func (t *RequestSLO) ttftField() *time.Duration     { return &t.TTFT }
func (t *RequestSLO) tpotField() *time.Duration     { return &t.TPOT }

// ReadSLO reads the headers of a client. Of several values for one field the smallest applies. An invalid value
// is a 400 that names the correct form: a client whose deadline were ignored would not notice.
func ReadSLO(h http.Header) (t RequestSLO, e *openai.Error) {
	for _, f := range sloHeaders {
		for _, text := range h[f.name] {
			ms, err := strconv.ParseUint(text, 10, 31)
			if err != nil || ms == 0 {
				return RequestSLO{}, &openai.Error{
					Status: http.StatusBadRequest, Type: openai.TypeInvalidRequest, Code: openai.CodeInvalidValue, Param: f.name,
					Message: f.name + f.hint, NoRetry: true,
				}
			}
			dst := f.of(&t)
			if d := time.Duration(min(ms, maxSLOMillis)) * time.Millisecond; *dst == 0 || d < *dst {
				*dst = d
			}
		}
	}
	return t, nil
}
