package forward

import (
	"net/http"
	"net/textproto"
	"strings"
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
