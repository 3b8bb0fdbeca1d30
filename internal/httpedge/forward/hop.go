package forward

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Hop is the metadata of a request that one tier sends to the next.
type Hop struct {
	RequestID string
	Tenant    string
	Class     spec.Class
	// Flow separates the flows of a trusted tenant, for fairness among them; empty for other tenants.
	Flow string
	// Model is the resolved model.
	Model string
	// Hops counts how often a region forwarded the request to another.
	Hops int
	// Ticket is the entry in the sender's ledger; zero if the sender keeps none for this receiver.
	Ticket LedgerTicket
	// PromptTokens and MaxTokens are the sender's estimates. MaxTokens 0: the client set none.
	PromptTokens, MaxTokens int
	// Deadline is the time left until the client's deadline; 0 if there is none.
	Deadline time.Duration
	// RetriesLeft is 1 while the request's one retry is unused.
	RetriesLeft int
	// SpillWithin is the highest cost at a peer, without the round trip, at which the request is better served
	// there. The cost is the time to its first token plus the interference between it and running responses. 0:
	// it can be served nowhere else.
	SpillWithin time.Duration
	// Prefix is the hash of the longest known prefix of the prompt; 0 if none is known.
	Prefix uint64
	// AskUsage: request the usage of the stream from the worker. The client did not ask; the sender removes it.
	AskUsage bool
	// TellEndpoint: the response names the address of its worker.
	TellEndpoint bool
	// ContinuedTokens: the request continues a response of which this many tokens have reached the client. Its
	// usage is added to that response, and its prompt is not counted again. 0: an ordinary request.
	ContinuedTokens int
	// Deaths is the number of workers known to have died while serving the request.
	Deaths int
}

// LedgerTicket names one entry of a parent's ledger.
type LedgerTicket struct {
	Parent string // instance name
	Boot   uint64
	Number uint64
}

// String returns the ticket in its header form; empty for the zero LedgerTicket.
func (t LedgerTicket) String() string {
	if t.Parent == "" {
		return ""
	}
	b := append(make([]byte, 0, 80), t.Parent...)
	b = strconv.AppendUint(append(b, ';'), t.Boot, 10)
	return string(strconv.AppendUint(append(b, ';'), t.Number, 10))
}

// ParseLedgerTicket parses a ticket header. The empty string is the zero LedgerTicket.
func ParseLedgerTicket(s string) (LedgerTicket, error) {
	if s == "" {
		return LedgerTicket{}, nil
	}
	name, rest, _ := strings.Cut(s, ";")
	boot, n, ok := strings.Cut(rest, ";")
	if !ok || name == "" || len(name) > maxNameBytes {
		return LedgerTicket{}, errMalformedTicket
	}
	t := LedgerTicket{Parent: name}
	var err1, err2 error
	t.Boot, err1 = strconv.ParseUint(boot, 10, 64)
	t.Number, err2 = strconv.ParseUint(n, 10, 64)
	if err1 != nil || err2 != nil {
		return LedgerTicket{}, errMalformedTicket
	}
	return t, nil
}

var errMalformedTicket = errors.New(`ticket is not "<gateway>;<boot>;<n>"`)

// maxNameBytes bounds names in headers, in bytes.
const maxNameBytes = 253

// maxTokenCount bounds token counts in headers.
const maxTokenCount = 1 << 30

// SetHeaders sets the headers of the hop.
func (p *Hop) SetHeaders(h http.Header) {
	values := make([]string, 0, 16) // one allocation for all values
	text := func(name, v string) {
		if v != "" {
			values = append(values, v)
			h[name] = values[len(values)-1 : len(values) : len(values)]
		}
	}
	number := func(name string, v int) {
		if v > 0 {
			text(name, strconv.Itoa(v))
		}
	}
	text(HeaderRequestID, p.RequestID)
	text(HeaderTenant, p.Tenant)
	text(HeaderFlow, p.Flow)
	text(HeaderClass, p.Class.String())
	text(HeaderModel, p.Model)
	number(HeaderHop, p.Hops)
	text(HeaderTicket, p.Ticket.String())
	number(HeaderPromptTokens, p.PromptTokens)
	number(HeaderMaxTokens, p.MaxTokens)
	number(HeaderDeadlineMS, int(p.Deadline/time.Millisecond))
	number(HeaderRetriesLeft, p.RetriesLeft)
	number(HeaderSpillWithinMS, int(p.SpillWithin/time.Millisecond))
	number(HeaderContinues, p.ContinuedTokens)
	number(HeaderDeaths, p.Deaths)
	if p.AskUsage {
		text(HeaderAskUsage, "1")
	}
	if p.TellEndpoint {
		text(HeaderTellEndpoint, "1")
	}
	if p.Prefix != 0 {
		h.Set(HeaderPrefix, strconv.FormatUint(p.Prefix, 16))
	}
}

// ParseHop parses the headers of the hop. An absent header is its zero value; a malformed one is an error that
// names it.
func ParseHop(h http.Header) (Hop, error) {
	p := Hop{RequestID: FirstValue(h, HeaderRequestID), Tenant: FirstValue(h, HeaderTenant), Model: FirstValue(h, HeaderModel), Flow: FirstValue(h, HeaderFlow)}
	if len(p.RequestID) > maxNameBytes || len(p.Tenant) > maxNameBytes || len(p.Model) > maxNameBytes || len(p.Flow) > maxFlowBytes {
		return Hop{}, fmt.Errorf("%s, %s or %s is longer than %d bytes, or %s than %d", HeaderRequestID, HeaderTenant, HeaderModel, maxNameBytes, HeaderFlow, maxFlowBytes)
	}
	var err error
	if p.Class, err = spec.ParseClass(FirstValue(h, HeaderClass)); err != nil {
		return Hop{}, fmt.Errorf("reading %s: %w", HeaderClass, err)
	}
	if p.Ticket, err = ParseLedgerTicket(FirstValue(h, HeaderTicket)); err != nil {
		return Hop{}, fmt.Errorf("reading %s: %w", HeaderTicket, err)
	}
	var ms, within int
	for _, f := range []struct {
		name string
		dst  *int
	}{
		{HeaderHop, &p.Hops},
		{HeaderPromptTokens, &p.PromptTokens},
		{HeaderMaxTokens, &p.MaxTokens},
		{HeaderDeadlineMS, &ms},
		{HeaderSpillWithinMS, &within},
		{HeaderRetriesLeft, &p.RetriesLeft},
		{HeaderContinues, &p.ContinuedTokens},
		{HeaderDeaths, &p.Deaths},
	} {
		if *f.dst, err = parseCount(FirstValue(h, f.name)); err != nil {
			return Hop{}, fmt.Errorf("reading %s: %w", f.name, err)
		}
	}
	p.Deadline, p.SpillWithin = time.Duration(ms)*time.Millisecond, time.Duration(within)*time.Millisecond
	p.AskUsage = FirstValue(h, HeaderAskUsage) == "1"
	p.TellEndpoint = FirstValue(h, HeaderTellEndpoint) == "1"
	if v := FirstValue(h, HeaderPrefix); v != "" {
		if p.Prefix, err = strconv.ParseUint(v, 16, 64); err != nil {
			return Hop{}, fmt.Errorf("reading %s: %w", HeaderPrefix, err)
		}
	}
	return p, nil
}

func parseCount(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n > maxTokenCount {
		return 0, fmt.Errorf("not a whole number up to %d", maxTokenCount)
	}
	return int(n), nil
}

// Headers of the Gateway API inference extension, and llm-d's names for them.
const (
	headerObjective      = "X-Gateway-Inference-Objective"
	headerObjectiveLLMD  = "X-Llm-D-Inference-Objective"
	headerFairness       = "X-Gateway-Inference-Fairness-Id"
	headerFairnessLLMD   = "X-Llm-D-Inference-Fairness-Id"
	headerRewrite        = "X-Gateway-Model-Name-Rewrite"
	headerRewriteLLMD    = "X-Llm-D-Model-Name-Rewrite"
	HeaderServedEndpoint = "X-Gateway-Destination-Endpoint-Served" // in a response: host:port of its worker
)

// maxFlowBytes bounds the name of a flow, in bytes.
const maxFlowBytes = 128

// firstOf returns the first non-empty value of two headers. The names must be in canonical form, as for
// FirstValue.
func firstOf(h http.Header, one, other string) string {
	if v := FirstValue(h, one); v != "" {
		return v
	}
	return FirstValue(h, other)
}

// TakeModelRewrite removes and returns the model of the rewrite header, which is served instead of the model in
// the body; empty if there is none. Permissions are checked as if the body named it.
func TakeModelRewrite(h http.Header) string {
	v := firstOf(h, headerRewrite, headerRewriteLLMD)
	if v != "" {
		delete(h, headerRewrite) // a worker that is itself a gateway would rewrite again
		delete(h, headerRewriteLLMD)
	}
	return v
}

// SetServedEndpoint sets the header that names the worker of a response by its URL, if trusted is true: only
// trusted clients learn internal addresses.
func SetServedEndpoint(out http.Header, trusted bool, url string) {
	if !trusted {
		delete(out, HeaderServedEndpoint)
		return
	}
	_, at, _ := strings.Cut(url, "://")
	at, _, _ = strings.Cut(at, "/")
	out.Set(HeaderServedEndpoint, at)
}

// RequestedClass returns the class that a request names by HeaderClientClass or by its objective. An unknown
// objective is ignored, because objectives are free names; an unknown class in our own header is an error. The
// default is the standard class.
func RequestedClass(h http.Header, s *spec.Spec) (c spec.Class, named bool, err error) {
	if v := h.Get(HeaderClientClass); v != "" {
		c, err = spec.ParseClass(v)
		return c, err == nil, err
	}
	if v := firstOf(h, headerObjective, headerObjectiveLLMD); v != "" {
		if c, named = s.ObjectiveClass(v); named {
			return c, true, nil
		}
	}
	return spec.Standard, false, nil
}

// FairnessFlow returns the fairness id of a request, which separates the flows of one tenant. It is empty for
// an invalid name, and for a tenant whose spec does not allow it to set flows.
func FairnessFlow(h http.Header, t *spec.Tenant) string {
	if t == nil || !t.Trusted {
		return ""
	}
	id := firstOf(h, headerFairness, headerFairnessLLMD)
	if len(id) > maxFlowBytes {
		return ""
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' {
			return ""
		}
	}
	return id
}
