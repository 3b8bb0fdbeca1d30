package relay

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Hop is what one tier tells the next about a request.
type Hop struct {
	RequestID string
	Tenant    string
	Class     spec.Class
	// Flow tells the flows of a trusted tenant apart, for fairness among them; empty for those of others.
	Flow string
	// Model is what the requested model resolved to.
	Model string
	// Hops counts how often a region passed the request on to another.
	Hops int
	// Ticket is the sender's ledger entry; zero when it keeps none for this receiver.
	Ticket Ticket
	// PromptTokens and MaxTokens are what the sender reckoned with. MaxTokens 0: the caller named none.
	PromptTokens, MaxTokens int
	// Deadline is what is left of the caller's deadline; 0 when there is none.
	Deadline time.Duration
	// RetriesLeft is what is left of the request's one retry.
	RetriesLeft int
	// SpillWithin is what the request may cost a peer, the round trip left out, for it to be better off there: the time to its
	// first token, and what it and the answers under way cost each other. 0: it could be served nowhere else.
	SpillWithin time.Duration
	// Prefix is the hash of the prompt's longest known prefix; 0 when none is.
	Prefix uint64
	// AskUsage: the worker is to be asked for the usage of the stream. The client did not ask; the sender hides it.
	AskUsage bool
	// TellEndpoint: the caller is told its worker's address.
	TellEndpoint bool
	// Continues: the request goes on with an answer of which so many tokens have reached the client. What it uses is added
	// to that answer's account, and its prompt is not counted again. 0: it is a request of its own.
	Continues int
	// Deaths is how many workers are known to have died under the request.
	Deaths int
}

// Ticket names one entry of a parent's ledger.
type Ticket struct {
	Parent string // instance name
	Boot   uint64
	N      uint64
}

// String is the ticket as its header carries it; empty for the zero Ticket.
func (t Ticket) String() string {
	if t.Parent == "" {
		return ""
	}
	b := append(make([]byte, 0, 80), t.Parent...)
	b = strconv.AppendUint(append(b, ';'), t.Boot, 10)
	return string(strconv.AppendUint(append(b, ';'), t.N, 10))
}

// ParseTicket reads a ticket's header. The empty string is the zero Ticket.
func ParseTicket(s string) (Ticket, error) {
	if s == "" {
		return Ticket{}, nil
	}
	name, rest, _ := strings.Cut(s, ";")
	boot, n, ok := strings.Cut(rest, ";")
	if !ok || name == "" || len(name) > maxName {
		return Ticket{}, errTicket
	}
	t := Ticket{Parent: name}
	var err1, err2 error
	t.Boot, err1 = strconv.ParseUint(boot, 10, 64)
	t.N, err2 = strconv.ParseUint(n, 10, 64)
	if err1 != nil || err2 != nil {
		return Ticket{}, errTicket
	}
	return t, nil
}

var errTicket = errors.New(`ticket is not "<gateway>;<boot>;<n>"`)

// maxName bounds names in headers, in bytes.
const maxName = 253

// maxTokens bounds token counts in headers.
const maxTokens = 1 << 30

// Set writes the hop's headers.
func (p *Hop) Set(h http.Header) {
	values := make([]string, 0, 16) // one piece of memory for all
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
	number(HeaderContinues, p.Continues)
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

// ParseHop reads the hop's headers. An absent header is its zero; a malformed one is an error that names it.
func ParseHop(h http.Header) (Hop, error) {
	p := Hop{RequestID: First(h, HeaderRequestID), Tenant: First(h, HeaderTenant), Model: First(h, HeaderModel), Flow: First(h, HeaderFlow)}
	if len(p.RequestID) > maxName || len(p.Tenant) > maxName || len(p.Model) > maxName || len(p.Flow) > maxFlow {
		return Hop{}, fmt.Errorf("%s, %s or %s is longer than %d bytes, or %s than %d", HeaderRequestID, HeaderTenant, HeaderModel, maxName, HeaderFlow, maxFlow)
	}
	var err error
	if p.Class, err = spec.ParseClass(First(h, HeaderClass)); err != nil {
		return Hop{}, fmt.Errorf("reading %s: %w", HeaderClass, err)
	}
	if p.Ticket, err = ParseTicket(First(h, HeaderTicket)); err != nil {
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
		{HeaderContinues, &p.Continues},
		{HeaderDeaths, &p.Deaths},
	} {
		if *f.dst, err = whole(First(h, f.name)); err != nil {
			return Hop{}, fmt.Errorf("reading %s: %w", f.name, err)
		}
	}
	p.Deadline, p.SpillWithin = time.Duration(ms)*time.Millisecond, time.Duration(within)*time.Millisecond
	p.AskUsage = First(h, HeaderAskUsage) == "1"
	p.TellEndpoint = First(h, HeaderTellEndpoint) == "1"
	if v := First(h, HeaderPrefix); v != "" {
		if p.Prefix, err = strconv.ParseUint(v, 16, 64); err != nil {
			return Hop{}, fmt.Errorf("reading %s: %w", HeaderPrefix, err)
		}
	}
	return p, nil
}

func whole(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n > maxTokens {
		return 0, fmt.Errorf("not a whole number up to %d", maxTokens)
	}
	return int(n), nil
}
