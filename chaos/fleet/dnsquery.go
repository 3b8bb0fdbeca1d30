package fleet

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// DNSAnswer is the answer of a global node.
type DNSAnswer struct {
	Addr   netip.Addr        // of an A record
	TTL    time.Duration     // of the answer
	Rcode  dnsmessage.RCode  // of the message
	Stale  bool              // it has the Extended DNS Error for stale answers (RFC 8914, code 3)
	Fields map[string]string // key=value texts of a TXT record; several of one key are joined by "; "
}

// ErrNoAnswer means that a node sent no answer.
var ErrNoAnswer = errors.New("no answer")

// QueryDNS queries a global node as the given client's resolver: for an address, or for TXT under the names of
// explanations.
func (p *InMemory) QueryDNS(node int, client netip.Addr, name string) (DNSAnswer, error) {
	kind := dnsmessage.TypeA
	if strings.HasPrefix(name, "_") {
		kind = dnsmessage.TypeTXT
	}
	q, err := buildQuestion(name, kind)
	if err != nil {
		return DNSAnswer{}, err
	}
	msg, ok := p.Globals[node].AnswerDNS(nil, q, client)
	if !ok {
		return DNSAnswer{}, ErrNoAnswer
	}
	return parseAnswer(msg)
}

func buildQuestion(name string, kind dnsmessage.Type) ([]byte, error) {
	n, err := dnsmessage.NewName(name)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", name, err)
	}
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{ID: 7})
	var h dnsmessage.ResourceHeader
	err = errors.Join(b.StartQuestions(), b.Question(dnsmessage.Question{Name: n, Type: kind, Class: dnsmessage.ClassINET}),
		b.StartAdditionals(), h.SetEDNS0(1232, 0, false), b.OPTResource(h, dnsmessage.OPTResource{}))
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", name, err)
	}
	return b.Finish()
}

// The Extended DNS Error option and its code for stale answers (RFC 8914).
const (
	optionEDE      = 15
	edeStaleAnswer = 3
)

func parseAnswer(msg []byte) (a DNSAnswer, err error) {
	var m dnsmessage.Message
	if err := m.Unpack(msg); err != nil {
		return a, fmt.Errorf("reading an answer: %w", err)
	}
	a.Rcode, a.Fields = m.RCode, map[string]string{}
	for _, rr := range m.Answers {
		a.TTL = time.Duration(rr.Header.TTL) * time.Second
		switch body := rr.Body.(type) {
		case *dnsmessage.AResource:
			a.Addr = netip.AddrFrom4(body.A)
		case *dnsmessage.TXTResource:
			for _, t := range body.TXT {
				k, v, _ := strings.Cut(t, "=")
				if old, twice := a.Fields[k]; twice {
					v = old + "; " + v
				}
				a.Fields[k] = v
			}
		}
	}
	for _, rr := range m.Additionals {
		if opt, ok := rr.Body.(*dnsmessage.OPTResource); ok {
			for _, o := range opt.Options {
				a.Stale = a.Stale || o.Code == optionEDE && len(o.Data) >= 2 && o.Data[0] == 0 && o.Data[1] == edeStaleAnswer
			}
		}
	}
	return a, nil
}

// RegionOf is the region whose gateway has the address; -1 for none.
func (p *InMemory) RegionOf(a netip.Addr) int {
	for r := range p.cfg.Regions {
		if GatewayHost(r) == a {
			return r
		}
	}
	return -1
}
