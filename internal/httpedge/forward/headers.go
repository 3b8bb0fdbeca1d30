package forward

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/http1"
	"github.com/spillway-lb/spillway/internal/openai"
)

// Headers between tiers. They are trusted only on connections whose client certificate belongs to a tier above;
// StripTierHeaders removes them from all other requests.
const (
	HeaderRequestID    = "Spillway-Request-Id"
	HeaderTenant       = "Spillway-Tenant"
	HeaderClass        = "Spillway-Class"
	HeaderFlow         = "Spillway-Flow"
	HeaderHop          = "Spillway-Hop"           // how many times a region forwarded it to another
	HeaderModel        = "Spillway-Model"         // the resolved model, so that a receiver can refuse before the body
	HeaderTicket       = "Spillway-Ticket"        // "<gateway>;<boot>;<n>": the entry in the sender's ledger
	HeaderPromptTokens = "Spillway-Prompt-Tokens" // the estimate used for routing
	HeaderMaxTokens    = "Spillway-Max-Tokens"
	HeaderDeadlineMS   = "Spillway-Deadline-Ms" // time left until the client's deadline
	HeaderRetriesLeft  = "Spillway-Retries-Left"
	HeaderPrefix       = "Spillway-Prefix"        // hash of the longest known prefix of the prompt, hexadecimal
	HeaderAskUsage     = "Spillway-Ask-Usage"     // "1": request the usage of a stream; the client did not, and the sender removes it
	HeaderTellEndpoint = "Spillway-Tell-Endpoint" // "1": the response must name the address of its worker
	HeaderContinues    = "Spillway-Continues"     // the request continues a response that was cut after this many tokens
	// HeaderDeaths is how many workers have died while serving the request: in a request those known to the
	// sender, in a response those seen since. A request with one death is tried once more; with two, nowhere.
	HeaderDeaths = "Spillway-Deaths"
	// HeaderNotStarted in a response means that the request may be tried elsewhere: no work was begun, or none
	// succeeded and its one retry is left.
	HeaderSpillWithinMS = "Spillway-Spill-Within-Ms" // the longest time to the first token at a peer for which a spill is worthwhile
	HeaderNotStarted    = "Spillway-Not-Started"
	// HeaderProgress in an interim response (102) reports the progress of a request to the tier above:
	// ProgressQueued or ProgressStarted. A request without it went to a worker at once.
	HeaderProgress = "Spillway-Progress"
)

// Headers for clients.
const (
	HeaderXRequestID   = "X-Request-Id"
	HeaderRoute        = "X-Spillway-Route" // region/zone/worker
	HeaderServerTiming = "Server-Timing"
	// HeaderClientDeadline is the client's deadline, in milliseconds from arrival.
	HeaderClientDeadline = "X-Spillway-Deadline-Ms"
	// HeaderClientSession names a conversation, so that its requests can be routed to one worker.
	HeaderClientSession = "X-Session-Id"
	// HeaderClientClass requests a lower class than the client's own.
	HeaderClientClass = "X-Spillway-Class"
	// HeaderClientTarget selects one target of an alias by its model name.
	HeaderClientTarget = "X-Spillway-Target"
	// HeaderFallback in a response reports that a smaller model produced it: "asked -> served".
	HeaderFallback = "X-Spillway-Fallback"
	// HeaderResumed is a trailer of streams that were cut and resumed elsewhere: the tiers that resumed them.
	HeaderResumed = "X-Spillway-Resumed"
)

// ALPN is the protocol between tiers: HTTP/1.1 costs less CPU per event than HTTP/2 or HTTP/3.
const ALPN = "http/1.1"

const tierHeaderPrefix = "Spillway-"

// StripTierHeaders removes every Spillway-* header, so that no outside client can act as a tier.
func StripTierHeaders(h http.Header) {
	for name := range h {
		if isTierHeader(name) {
			delete(h, name)
		}
	}
}

// FirstValue is h.Get for a name in canonical form: it skips the canonicalization.
func FirstValue(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func isTierHeader(name string) bool {
	return len(name) >= len(tierHeaderPrefix) && strings.EqualFold(name[:len(tierHeaderPrefix)], tierHeaderPrefix)
}

// isHopByHop reports whether a header belongs to one connection (RFC 9110, 7.6.1) and must not be forwarded.
func isHopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// isCredential reports whether a header carries credentials of the client, which the next tier must not see.
func isCredential(name string) bool {
	switch name {
	case "Authorization", "X-Api-Key", "Api-Key", "Cookie":
		return true
	}
	return false
}

// copyHeaders copies the end-to-end headers of src to dst, without those named by the Connection header of src,
// without Spillway-* headers, and without those for which drop is true. The value slices are shared: they are
// never modified in place.
func copyHeaders(dst, src http.Header, drop func(name string) bool) {
	var named map[string]bool
	for _, line := range src["Connection"] {
		for _, n := range strings.Split(line, ",") {
			if named == nil {
				named = map[string]bool{}
			}
			named[textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(n))] = true
		}
	}
	for name, values := range src {
		if isHopByHop(name) || isTierHeader(name) || named[name] || (drop != nil && drop(name)) {
			continue
		}
		dst[name] = values[:len(values):len(values)]
	}
}

// maxRequestIDBytes bounds the client's ID of a request, in bytes: it goes into logs, records and headers.
const maxRequestIDBytes = 128

// ClientRequestID returns the client's ID of a request, from X-Client-Request-Id or X-Request-Id, or empty. A
// value that is too long, or not printable ASCII without spaces, is ignored.
func ClientRequestID(h http.Header) string {
	for _, name := range [...]string{"X-Client-Request-Id", HeaderXRequestID} {
		if id := FirstValue(h, name); id != "" && isLoggable(id) {
			return id
		}
	}
	return ""
}

func isLoggable(id string) bool {
	if len(id) > maxRequestIDBytes {
		return false
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

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

// ProgressObserver observes a request until its final response.
type ProgressObserver = http1.ProgressObserver

// Values of HeaderProgress.
const (
	ProgressQueued  = "queued"  // the request waits for capacity of a worker
	ProgressStarted = "started" // a queued request was dispatched to a worker
)

// WriteProgress writes an interim response (102) to the tier above. The final response must not have begun.
func WriteProgress(w http.ResponseWriter, progress string) {
	h := w.Header()
	h.Set(HeaderProgress, progress)
	w.WriteHeader(http.StatusProcessing)
	h.Del(HeaderProgress)
}

// ObserveInterim returns ctx with interim called for each interim response to a request that net/http carries.
func ObserveInterim(ctx context.Context, interim func(h http.Header)) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		interim(http.Header(h))
		return nil
	}})
}
