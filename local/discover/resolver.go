package discover

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// maxRecords bounds the records used of one answer.
	maxRecords = 1024
	// maxAliases bounds the CNAMEs that are followed.
	maxAliases = 8
	// udpSize fits every path without fragmentation, in bytes.
	udpSize = 1232
	// lookupTimeout bounds one query to one server.
	lookupTimeout = 2 * time.Second
	// maxServers bounds the servers of /etc/resolv.conf that are used, as in libc.
	maxServers = 3
)

// dnsRecord is an address, or the target of an SRV record.
type dnsRecord struct {
	addr             netip.Addr
	target           string
	port             uint16
	priority, weight uint16
}

// dnsQuestion is a name and a type of records.
type dnsQuestion struct {
	name string // lower case, with the final dot
	kind dnsmessage.Type
}

// lookupError is a lookup without a usable answer. Its outcome is a label of metrics.
type lookupError struct {
	outcome string // nxdomain, refused, malformed or unreachable
	err     error
}

func (e *lookupError) Error() string { return e.err.Error() }
func (e *lookupError) Unwrap() error { return e.err }

// lookupOutcomes lists the outcomes of lookups, in the order of Stats.
func lookupOutcomes() []string {
	return []string{"ok", "empty", "nxdomain", "refused", "malformed", "unreachable"}
}

// dnsResolver queries recursive DNS servers. It has no cache: its callers do.
type dnsResolver struct {
	server string // host:port; empty for those of resolv.conf
}

// lookupQuestion queries the servers in turn until one has an answer for the name.
func (r *dnsResolver) lookupQuestion(ctx context.Context, q dnsQuestion) ([]dnsRecord, error) {
	servers := []string{r.server}
	if r.server == "" {
		servers = systemServers("/etc/resolv.conf")
	}
	var last error
	for _, s := range servers {
		recs, err := r.queryServer(ctx, s, q)
		var e *lookupError
		if err == nil || errors.As(err, &e) && e.outcome == "nxdomain" {
			return recs, err
		}
		last = err
	}
	return nil, last
}

// queryServer queries by UDP, and again by TCP when the answer was truncated.
func (r *dnsResolver) queryServer(ctx context.Context, server string, q dnsQuestion) ([]dnsRecord, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	for _, network := range []string{"udp", "tcp"} {
		id, query, err := packQuery(q)
		if err != nil {
			return nil, &lookupError{"malformed", err}
		}
		msg, err := exchangeQuery(ctx, network, server, id, query, q)
		if err != nil {
			return nil, &lookupError{"unreachable", fmt.Errorf("asking %s by %s: %w", server, network, err)}
		}
		recs, truncated, err := parseAnswer(msg, q)
		if !truncated || network == "tcp" {
			return recs, err
		}
	}
	return nil, nil // not reached: the answer by TCP is final
}

// packQuery encodes a query with a random id.
func packQuery(q dnsQuestion) (uint16, []byte, error) {
	name, err := dnsmessage.NewName(q.name)
	if err != nil {
		return 0, nil, fmt.Errorf("name %q: %w", q.name, err)
	}
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails: the runtime aborts instead
	opt := dnsmessage.Resource{Body: &dnsmessage.OPTResource{}}
	if err := opt.Header.SetEDNS0(udpSize, dnsmessage.RCodeSuccess, false); err != nil {
		return 0, nil, err
	}
	m := dnsmessage.Message{
		Header:      dnsmessage.Header{ID: binary.BigEndian.Uint16(b[:]), RecursionDesired: true},
		Questions:   []dnsmessage.Question{{Name: name, Type: q.kind, Class: dnsmessage.ClassINET}},
		Additionals: []dnsmessage.Resource{opt},
	}
	out, err := m.Pack()
	return m.ID, out, err
}

// exchangeQuery sends a query and waits for its answer. Messages that do not match are ignored: with UDP any host may
// send them.
func exchangeQuery(ctx context.Context, network, server string, id uint16, query []byte, q dnsQuestion) ([]byte, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, server)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if network == "tcp" {
		query = append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)
	}
	if _, err := c.Write(query); err != nil {
		return nil, err
	}
	buf := make([]byte, 1<<16)
	for {
		n, err := readMessage(c, network, buf)
		if err != nil {
			return nil, err
		}
		if isAnswerTo(buf[:n], id, q) {
			return buf[:n], nil
		}
		if network == "tcp" {
			return nil, errors.New("the answer is to another question")
		}
	}
}

func readMessage(c net.Conn, network string, buf []byte) (int, error) {
	if network == "udp" {
		return c.Read(buf)
	}
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return 0, err
	}
	return io.ReadFull(c, buf[:binary.BigEndian.Uint16(length[:])])
}

// isAnswerTo reports whether a message is an answer to the question.
func isAnswerTo(msg []byte, id uint16, q dnsQuestion) bool {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil || !h.Response || h.ID != id {
		return false
	}
	got, err := p.Question()
	return err == nil && got.Type == q.kind && got.Class == dnsmessage.ClassINET && strings.EqualFold(got.Name.String(), q.name)
}

// parseAnswer returns the records at the end of the name's aliases. A truncated answer yields none.
func parseAnswer(msg []byte, q dnsQuestion) (recs []dnsRecord, truncated bool, err error) {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil {
		return nil, false, &lookupError{"malformed", err}
	}
	switch {
	case h.Truncated:
		return nil, true, &lookupError{"malformed", errors.New("the answer is cut short even by TCP")}
	case h.RCode == dnsmessage.RCodeNameError:
		return nil, false, &lookupError{"nxdomain", errors.New("there is no such name")}
	case h.RCode != dnsmessage.RCodeSuccess:
		return nil, false, &lookupError{"refused", fmt.Errorf("the server answers %s", h.RCode)}
	}
	if err := p.SkipAllQuestions(); err != nil {
		return nil, false, &lookupError{"malformed", err}
	}
	byName, aliases, err := readAnswers(&p, q.kind)
	if err != nil {
		return nil, false, &lookupError{"malformed", err}
	}
	owner := q.name
	for range maxAliases {
		next, ok := aliases[owner]
		if !ok {
			break
		}
		owner = next
	}
	return byName[owner], false, nil
}

// readAnswers returns the records and aliases by owner.
func readAnswers(p *dnsmessage.Parser, kind dnsmessage.Type) (map[string][]dnsRecord, map[string]string, error) {
	byName, aliases := map[string][]dnsRecord{}, map[string]string{}
	for range maxRecords + maxAliases {
		h, err := p.AnswerHeader()
		if errors.Is(err, dnsmessage.ErrSectionDone) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		owner := strings.ToLower(h.Name.String())
		rec, alias, err := readRecord(p, h, kind)
		switch {
		case err != nil:
			return nil, nil, err
		case alias != "":
			aliases[owner] = alias
		case rec != (dnsRecord{}) && len(byName[owner]) < maxRecords:
			byName[owner] = append(byName[owner], rec)
		}
	}
	return byName, aliases, nil
}

// readRecord reads one record; both results are empty for one of another type.
func readRecord(p *dnsmessage.Parser, h dnsmessage.ResourceHeader, kind dnsmessage.Type) (rec dnsRecord, alias string, err error) {
	switch {
	case h.Class != dnsmessage.ClassINET:
		err = p.SkipAnswer()
	case h.Type == dnsmessage.TypeCNAME:
		var r dnsmessage.CNAMEResource
		r, err = p.CNAMEResource()
		alias = strings.ToLower(r.CNAME.String())
	case h.Type != kind:
		err = p.SkipAnswer()
	case kind == dnsmessage.TypeA:
		var r dnsmessage.AResource
		r, err = p.AResource()
		rec.addr = netip.AddrFrom4(r.A)
	case kind == dnsmessage.TypeAAAA:
		var r dnsmessage.AAAAResource
		r, err = p.AAAAResource()
		rec.addr = netip.AddrFrom16(r.AAAA).Unmap()
	case kind == dnsmessage.TypeSRV:
		var r dnsmessage.SRVResource
		r, err = p.SRVResource()
		if target := strings.ToLower(r.Target.String()); target != "." && r.Port != 0 { // "." means that the service is not available
			rec = dnsRecord{target: target, port: r.Port, priority: r.Priority, weight: r.Weight}
		}
	default:
		err = p.SkipAnswer()
	}
	return rec, alias, err
}

// systemServers reads the machine's name servers; 127.0.0.1 if there are none.
func systemServers(path string) (out []string) {
	f, err := os.Open(path)
	if err == nil {
		defer func() { _ = f.Close() }()
		for lines := bufio.NewScanner(io.LimitReader(f, 1<<16)); lines.Scan() && len(out) < maxServers; {
			if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == "nameserver" {
				if a, err := netip.ParseAddr(words[1]); err == nil {
					out = append(out, netip.AddrPortFrom(a, 53).String())
				}
			}
		}
	}
	if len(out) == 0 {
		out = []string{"127.0.0.1:53"}
	}
	return slices.Compact(out)
}
