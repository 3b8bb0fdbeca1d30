package relay

import (
	"net/http"
	"net/textproto"
	"strings"
)

// Headers between tiers. They come from a tier above and are believed only on connections whose certificate says so;
// Strip removes them from everything else.
const (
	HeaderRequestID    = "Spillway-Request-Id"
	HeaderTenant       = "Spillway-Tenant"
	HeaderClass        = "Spillway-Class"
	HeaderFlow         = "Spillway-Flow"
	HeaderHop          = "Spillway-Hop"           // how many times a region passed it on
	HeaderModel        = "Spillway-Model"         // what the model resolved to, so that a receiver can refuse before the body
	HeaderTicket       = "Spillway-Ticket"        // "<gateway>;<boot>;<n>": the sender's ledger entry
	HeaderPromptTokens = "Spillway-Prompt-Tokens" // the estimate that was used to choose
	HeaderMaxTokens    = "Spillway-Max-Tokens"
	HeaderDeadlineMS   = "Spillway-Deadline-Ms" // what is left of the caller's deadline
	HeaderRetriesLeft  = "Spillway-Retries-Left"
	HeaderPrefix       = "Spillway-Prefix"        // hash of the prompt's longest known prefix, hexadecimal
	HeaderAskUsage     = "Spillway-Ask-Usage"     // "1": ask for the usage of a stream; its client did not, and the sender hides it
	HeaderTellEndpoint = "Spillway-Tell-Endpoint" // "1": the answer is to say which worker's address it is from
	HeaderContinues    = "Spillway-Continues"     // the request goes on with an answer that was cut after so many tokens
	// HeaderDeaths is how many workers have died under the request: on a request what the sender knows, on an answer what the
	// receiver has seen since. A request with one is tried once more, one with two nowhere.
	HeaderDeaths = "Spillway-Deaths"
	// HeaderNotStarted on an answer says that the request may be tried elsewhere: no work was begun, or nothing came of it
	// and its one retry is unspent.
	HeaderSpillWithinMS = "Spillway-Spill-Within-Ms" // how long a peer may take to the first token for the spill to be worth it
	HeaderNotStarted    = "Spillway-Not-Started"
	// HeaderProgress on an interim answer 102 tells the tier above how far a request has come: ProgressQueued or
	// ProgressStarted. A request without one went to a worker at once.
	HeaderProgress = "Spillway-Progress"
)

// Headers for clients.
const (
	HeaderXRequestID   = "X-Request-Id"
	HeaderRoute        = "X-Spillway-Route" // region/zone/worker
	HeaderServerTiming = "Server-Timing"
	// HeaderClientDeadline is how a client names its deadline, in milliseconds from arrival.
	HeaderClientDeadline = "X-Spillway-Deadline-Ms"
	// HeaderClientSession names a conversation, so that its requests can be kept together.
	HeaderClientSession = "X-Session-Id"
	// HeaderClientClass is how a client asks for a lower class than its own.
	HeaderClientClass = "X-Spillway-Class"
	// HeaderClientTarget is how a client insists on one of an alias's targets, by its model's name.
	HeaderClientTarget = "X-Spillway-Target"
	// HeaderFallback on an answer says that a smaller model gave it: "asked -> served".
	HeaderFallback = "X-Spillway-Fallback"
	// HeaderResumed is a trailer of streams that were cut and went on elsewhere: the tiers that saw to it.
	HeaderResumed = "X-Spillway-Resumed"
)

// ALPN is the protocol between tiers: HTTP/1.1 costs less CPU for each event than HTTP/2 or HTTP/3.
const ALPN = "http/1.1"

const internalPrefix = "Spillway-"

// Strip removes every Spillway-* header, so that nobody outside can speak as a tier.
func Strip(h http.Header) {
	for name := range h {
		if internal(name) {
			delete(h, name)
		}
	}
}

// First is a header's first value, as h.Get has it, for a name that is in its canonical form: the look at that is saved.
func First(h http.Header, name string) string {
	if v := h[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func internal(name string) bool {
	return len(name) >= len(internalPrefix) && strings.EqualFold(name[:len(internalPrefix)], internalPrefix)
}

// hopByHop reports whether a header belongs to one connection (RFC 9110, 7.6.1) and must not be passed on.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
		"Transfer-Encoding", "Upgrade":
		return true
	}
	return false
}

// secret reports whether a header carries what the next tier must not see: the caller's credentials.
func secret(name string) bool {
	switch name {
	case "Authorization", "X-Api-Key", "Api-Key", "Cookie":
		return true
	}
	return false
}

// pass copies the end-to-end headers of src to dst, without those that src's Connection header names, without
// Spillway-* headers, and without those that drop names. The lists of values are shared: nobody changes one in place.
func pass(dst, src http.Header, drop func(name string) bool) {
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
		if hopByHop(name) || internal(name) || named[name] || (drop != nil && drop(name)) {
			continue
		}
		dst[name] = values[:len(values):len(values)]
	}
}
