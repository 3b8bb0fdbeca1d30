package dns

import (
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// handler turns one message into its answer. Between messages it remembers only how fast it answers whom.
type handler struct {
	view    func() View
	secrets func() []Secret
	limiter *limiter // nil: nobody is limited
	nsid    string
	version string
	debug   bool   // names that explain are answered
	idle    uint16 // TCP idle timeout, in 100 ms, as RFC 7828 states it
}

// exchange is one question on its way to an answer.
type exchange struct {
	q           query
	from        netip.Addr // the resolver
	size        int        // of the query, in bytes
	by          Transport
	proven      bool // by its cookie: the resolver is where it says
	view        View
	zone        *Zone
	lower       string // the question's name in lower case
	reply       *dns.Msg
	remarks     remarks
	service     int
	stale       bool
	given       Answer // of the view, where it was asked
	absent      bool   // nothing stands at or below the name, whatever the reply's code is
	proved      bool   // with signatures
	first, keep int    // the portion of the addresses that is answered, see portion
}

// handle appends the answer to a message to dst[:0]. It reports false when there is to be none.
func (h *handler) handle(dst, msg []byte, from netip.Addr, by Transport) ([]byte, Event, bool) {
	q, verdict := parse(msg)
	x := &exchange{q: q, from: from.Unmap(), size: len(msg), by: by, reply: new(dns.Msg), service: -1}
	event := Event{N: 1, Qtype: q.qtype, Rcode: Dropped, Service: -1, By: by}
	if verdict == mute {
		return nil, event, false
	}
	now := time.Now()
	x.head()
	x.know(h, verdict, now)
	switch {
	case verdict == foreign:
		x.reply.Rcode = dns.RcodeNotImplemented
	case verdict == newer:
		x.reply.Rcode = dns.RcodeBadVers
	case verdict == asksCookie && x.remarks.cookie.server: // RFC 7873, 5.4
	case verdict != sound:
		x.reply.Rcode = dns.RcodeFormatError
	default:
		h.resolve(x)
		x.prove(now)
	}
	out, err := x.pack(dst)
	if err != nil { // the view holds something that no message can carry
		x.reply.Rcode, x.reply.Answer, x.reply.Ns, x.reply.Extra = dns.RcodeServerFailure, nil, nil, nil
		x.reply.Authoritative = false
		if out, err = x.pack(dst); err != nil {
			return nil, event, false
		}
	}
	event.Rcode, event.Service, event.Stale = x.reply.Rcode, x.service, x.stale
	if by == UDP && !x.proven {
		out, event.Limited = h.limiter.apply(out, x.from, x.class(), now)
	}
	return out, event, out != nil
}

// know fills in what does not depend on the question.
func (x *exchange) know(h *handler, verdict fault, now time.Time) {
	x.remarks.sound = verdict == sound || verdict == asksCookie
	x.remarks.nsid = h.nsid
	if x.remarks.sound {
		x.remarks.cookie, x.proven = x.q.options.cookie.check(h.cookieSecrets(), x.from, now)
	}
	if x.by != UDP {
		x.remarks.idle = h.idle
	}
	if x.by == TLS {
		x.remarks.pad = padding
	}
}

func (h *handler) cookieSecrets() []Secret {
	if h.secrets == nil {
		return nil
	}
	return h.secrets()
}

// padding hides what is asked by the size of its answer (RFC 8467, 4.1).
const padding = 468

// head sets what every answer carries: flags are copied one by one, because those that a query must not set are lost.
func (x *exchange) head() {
	x.reply.Id, x.reply.Response, x.reply.Opcode = x.q.id, true, x.q.opcode
	if x.q.opcode != dns.OpcodeQuery {
		return
	}
	x.reply.RecursionDesired, x.reply.CheckingDisabled = x.q.rd, x.q.cd
	if x.q.name != "" {
		x.reply.Question = []dns.Question{{Name: x.q.name, Qtype: x.q.qtype, Qclass: x.q.qclass}}
	}
}

// resolve finds the answer to a sound query.
func (h *handler) resolve(x *exchange) {
	x.lower = strings.ToLower(x.q.name)
	switch {
	case x.q.qclass == dns.ClassCHAOS:
		h.chaos(x)
		return
	case x.q.qclass != dns.ClassINET:
		x.reply.Rcode = dns.RcodeRefused
		return
	}
	if x.view = h.view(); x.view != nil {
		x.zone = x.view.Zone()
	}
	switch {
	case x.zone == nil:
		x.reply.Rcode = dns.RcodeServerFailure
	case !dns.IsSubDomain(x.zone.Name, x.lower):
		x.reply.Rcode = dns.RcodeRefused
	case x.q.qtype == dns.TypeAXFR || x.q.qtype == dns.TypeIXFR:
		x.reply.Rcode = dns.RcodeRefused
	case x.q.qtype == dns.TypeNXNAME: // RFC 9824, 3.5
		x.reply.Rcode, x.remarks.ede = dns.RcodeFormatError, edeType
	case metaType(x.q.qtype):
		x.reply.Rcode = dns.RcodeNotImplemented
	default:
		x.reply.Authoritative = true
		if x.q.options.version {
			x.remarks.version, x.remarks.serial = true, x.zone.Serial
			x.remarks.labels = uint8(dns.CountLabel(x.zone.Name))
		}
		x.answer(h.debug)
	}
}

// metaType reports whether a type is about messages or servers and never stored, ANY and the transfers aside.
func metaType(t uint16) bool {
	switch t {
	case dns.TypeOPT, dns.TypeTSIG, dns.TypeTKEY, dns.TypeMAILA, dns.TypeMAILB:
		return true
	}
	return false
}

// chaos tells the node's name and version to those who ask for them in class CH, as far as they are told to anybody.
func (h *handler) chaos(x *exchange) {
	text := ""
	switch x.lower {
	case "id.server.", "hostname.bind.":
		text = h.nsid
	case "version.server.", "version.bind.":
		text = h.version
	}
	if text == "" || x.q.qtype != dns.TypeTXT && x.q.qtype != dns.TypeANY {
		x.reply.Rcode = dns.RcodeRefused
		return
	}
	x.reply.Authoritative = true
	txt := x.txt(0, []string{text})
	txt.Hdr.Class = dns.ClassCHAOS
	x.reply.Answer = append(x.reply.Answer, txt)
}
