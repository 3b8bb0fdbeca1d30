package dns

import (
	"net/netip"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// handler answers single messages. Its only state between messages is that of the rate limiter.
type handler struct {
	snapshot func() Snapshot
	secrets  func() []CookieSecret
	limiter  *responseLimiter // nil: no rate limit
	nsid     string
	version  string
	explain  bool   // debug names are answered
	tcpIdle  uint16 // TCP idle timeout, in 100 ms, as RFC 7828 states it
}

// queryExchange is the state of one question until its answer is written.
type queryExchange struct {
	q                    parsedQuery
	from                 netip.Addr // the resolver
	querySize            int        // of the query, in bytes
	transport            Transport
	cookieValid          bool // by its cookie: the resolver's address is not spoofed
	snapshot             Snapshot
	zone                 *ZoneData
	lowerName            string // the question's name in lower case
	reply                *dns.Msg
	answerOPT            answerOPT
	serviceID            int
	stale                bool
	steered              ServiceAnswer // of the snapshot, if it was looked up
	nameAbsent           bool          // no record exists at or below the name; independent of the reply's code
	hasSignatures        bool          // with signatures
	firstAddr, keepAddrs int           // the portion of the addresses in the answer, see choosePortion
}

// handleMessage appends the answer to a message to dst[:0]. It returns false if there is none.
func (h *handler) handleMessage(dst, msg []byte, from netip.Addr, by Transport) ([]byte, QueryEvent, bool) {
	q, verdict := parseQuery(msg)
	x := &queryExchange{q: q, from: from.Unmap(), querySize: len(msg), transport: by, reply: new(dns.Msg), serviceID: -1}
	event := QueryEvent{Count: 1, Qtype: q.qtype, Rcode: RcodeDropped, Service: -1, Transport: by}
	if verdict == faultSilent {
		return nil, event, false
	}
	now := time.Now()
	x.setHeader()
	x.prepareOPT(h, verdict, now)
	switch {
	case verdict == faultOpcode:
		x.reply.Rcode = dns.RcodeNotImplemented
	case verdict == faultEDNSVersion:
		x.reply.Rcode = dns.RcodeBadVers
	case verdict == faultCookieOnly && x.answerOPT.cookie.hasServer: // RFC 7873, 5.4
	case verdict != faultNone:
		x.reply.Rcode = dns.RcodeFormatError
	default:
		h.resolveQuery(x)
		x.signReply(now)
	}
	out, err := x.packReply(dst)
	if err != nil { // the snapshot holds data that does not fit into any message
		x.reply.Rcode, x.reply.Answer, x.reply.Ns, x.reply.Extra = dns.RcodeServerFailure, nil, nil, nil
		x.reply.Authoritative = false
		if out, err = x.packReply(dst); err != nil {
			return nil, event, false
		}
	}
	event.Rcode, event.Service, event.Stale = x.reply.Rcode, x.serviceID, x.stale
	if by == UDP && !x.cookieValid {
		out, event.RateLimit = h.limiter.limitAnswer(out, x.from, x.classifyReply(), now)
	}
	return out, event, out != nil
}

// prepareOPT sets the parts of the OPT record that do not depend on the question.
func (x *queryExchange) prepareOPT(h *handler, verdict queryFault, now time.Time) {
	x.answerOPT.understood = verdict == faultNone || verdict == faultCookieOnly
	x.answerOPT.nsid = h.nsid
	if x.answerOPT.understood {
		x.answerOPT.cookie, x.cookieValid = x.q.queryOPT.cookie.checkCookie(h.cookieSecrets(), x.from, now)
	}
	if x.transport != UDP {
		x.answerOPT.tcpIdle = h.tcpIdle
	}
	if x.transport == TLS {
		x.answerOPT.padBlock = paddingBlock
	}
}

func (h *handler) cookieSecrets() []CookieSecret {
	if h.secrets == nil {
		return nil
	}
	return h.secrets()
}

// paddingBlock hides the queried name from observers of the answer's size (RFC 8467, 4.1).
const paddingBlock = 468

// setHeader sets the header of every answer. Flags are copied one by one, so that flags that a query must not set are
// dropped.
func (x *queryExchange) setHeader() {
	x.reply.Id, x.reply.Response, x.reply.Opcode = x.q.id, true, x.q.opcode
	if x.q.opcode != dns.OpcodeQuery {
		return
	}
	x.reply.RecursionDesired, x.reply.CheckingDisabled = x.q.rd, x.q.cd
	if x.q.name != "" {
		x.reply.Question = []dns.Question{{Name: x.q.name, Qtype: x.q.qtype, Qclass: x.q.qclass}}
	}
}

// resolveQuery answers a valid query.
func (h *handler) resolveQuery(x *queryExchange) {
	x.lowerName = strings.ToLower(x.q.name)
	switch {
	case x.q.qclass == dns.ClassCHAOS:
		h.answerChaos(x)
		return
	case x.q.qclass != dns.ClassINET:
		x.reply.Rcode = dns.RcodeRefused
		return
	}
	if x.snapshot = h.snapshot(); x.snapshot != nil {
		x.zone = x.snapshot.Zone()
	}
	switch {
	case x.zone == nil:
		x.reply.Rcode = dns.RcodeServerFailure
	case !dns.IsSubDomain(x.zone.Name, x.lowerName):
		x.reply.Rcode = dns.RcodeRefused
	case x.q.qtype == dns.TypeAXFR || x.q.qtype == dns.TypeIXFR:
		x.reply.Rcode = dns.RcodeRefused
	case x.q.qtype == dns.TypeNXNAME: // RFC 9824, 3.5
		x.reply.Rcode, x.answerOPT.ede = dns.RcodeFormatError, edeType
	case isMetaType(x.q.qtype):
		x.reply.Rcode = dns.RcodeNotImplemented
	default:
		x.reply.Authoritative = true
		if x.q.queryOPT.zoneVersion {
			x.answerOPT.hasZoneVersion, x.answerOPT.serial = true, x.zone.Serial
			x.answerOPT.labels = uint8(dns.CountLabel(x.zone.Name))
		}
		x.fillAnswer(h.explain)
	}
}

// isMetaType reports whether a type concerns messages or servers and is never stored, except for ANY and the zone
// transfers.
func isMetaType(t uint16) bool {
	switch t {
	case dns.TypeOPT, dns.TypeTSIG, dns.TypeTKEY, dns.TypeMAILA, dns.TypeMAILB:
		return true
	}
	return false
}

// answerChaos answers queries in class CH for the node's name and version, if they are configured.
func (h *handler) answerChaos(x *queryExchange) {
	text := ""
	switch x.lowerName {
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
	txt := x.newTXT(0, []string{text})
	txt.Hdr.Class = dns.ClassCHAOS
	x.reply.Answer = append(x.reply.Answer, txt)
}
