package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// testDNSSEC signs the zone by command and queries every name server for the key that the command prints.
func (w *inProcessFleet) testDNSSEC(t *testing.T) {
	for _, verb := range []string{"keys", "ds"} {
		if out, _, err := runSpillway(t, "dnssec", verb, "--server", adminServerURL("global", "g1")); err == nil || out != "" || !strings.Contains(err.Error(), "hint: ") {
			t.Errorf("dnssec %s of a zone that is not signed prints %q, error %v", verb, out, err)
		}
	}
	w.mustRunSpillway(t, "dnssec", "enable", "--reason", "trying it")
	record := regexp.MustCompile(`^\S+\s+\d+\s+IN\s+DNSKEY\s+257 3 13 \S+\n$`)
	waitForSuccess(t, testTimeout, "the key is agreed on, and shown by every name server", func() error {
		out, _, err := runSpillway(t, "dnssec", "keys", "--server", adminServerURL("global", "g1"))
		if err != nil {
			return err
		}
		if !record.MatchString(out) {
			return fmt.Errorf("dnssec keys prints %q", out)
		}
		for _, server := range w.DNSAddrs() {
			if err := checkDNSKEYShown(fmt.Sprint(server), strings.Fields(out)[0]); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkDNSKEYShown queries a name server for the DNSKEY of the zone.
func checkDNSKEYShown(server, zone string) error {
	const typeDNSKEY = 48
	name, err := dnsmessage.NewName(zone)
	if err != nil {
		return err
	}
	q := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{{Name: name, Type: typeDNSKEY, Class: dnsmessage.ClassINET}}}
	b, err := q.Pack()
	if err != nil {
		return err
	}
	conn, err := net.Dial("udp", server)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Second))
	buf := make([]byte, 4096)
	if _, err := conn.Write(b); err != nil {
		return err
	}
	n, err := conn.Read(buf)
	if err != nil {
		return err
	}
	var a dnsmessage.Message
	if err := a.Unpack(buf[:n]); err != nil {
		return err
	}
	for _, r := range a.Answers {
		if r.Header.Type == typeDNSKEY {
			return nil
		}
	}
	return errors.New(server + " shows no DNSKEY")
}

// optionClientSubnet is the option code of EDNS Client Subnet (RFC 7871).
const optionClientSubnet = 8

// dnsReply is the answer of a name server.
type dnsReply struct {
	rcode dnsmessage.RCode
	addrs []netip.Addr
	texts []string
}

// textValue returns the value of the first "key=value" text, or "".
func (r dnsReply) textValue(key string) string {
	for _, s := range r.texts {
		if k, v, _ := strings.Cut(s, "="); k == key {
			return v
		}
	}
	return ""
}

// queryDNS sends one query to one name server over network ("udp" or "tcp"), with subnet as the client subnet.
func queryDNS(network string, server netip.AddrPort, name string, kind dnsmessage.Type, subnet netip.Prefix) (dnsReply, error) {
	id := uint16(rand.Uint32())
	question, err := packQuery(id, name, kind, subnet)
	if err != nil {
		return dnsReply{}, err
	}
	c, err := net.DialTimeout(network, server.String(), time.Second)
	if err != nil {
		return dnsReply{}, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return dnsReply{}, err
	}
	answer, err := exchangeQuery(c, network, question)
	if err != nil {
		return dnsReply{}, err
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		return dnsReply{}, fmt.Errorf("answer of %s: %w", server, err)
	}
	if m.ID != id || !m.Response {
		return dnsReply{}, fmt.Errorf("%s answered another query: %s", server, m.GoString())
	}
	return parseReply(&m), nil
}

func packQuery(id uint16, name string, kind dnsmessage.Type, subnet netip.Prefix) ([]byte, error) {
	n, err := dnsmessage.NewName(name)
	if err != nil {
		return nil, err
	}
	family := uint16(1)
	if subnet.Addr().Is6() {
		family = 2
	}
	option := binary.BigEndian.AppendUint16(nil, family)
	option = append(option, byte(subnet.Bits()), 0)
	option = append(option, subnet.Masked().Addr().AsSlice()[:(subnet.Bits()+7)/8]...)
	opt := dnsmessage.Resource{Body: &dnsmessage.OPTResource{Options: []dnsmessage.Option{{Code: optionClientSubnet, Data: option}}}}
	if err := opt.Header.SetEDNS0(1232, dnsmessage.RCodeSuccess, false); err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header:      dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions:   []dnsmessage.Question{{Name: n, Type: kind, Class: dnsmessage.ClassINET}},
		Additionals: []dnsmessage.Resource{opt},
	}
	return m.Pack()
}

func exchangeQuery(c net.Conn, network string, question []byte) ([]byte, error) {
	if network == "udp" {
		if _, err := c.Write(question); err != nil {
			return nil, err
		}
		answer := make([]byte, 4096)
		n, err := c.Read(answer)
		return answer[:n], err
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(question))), question...)); err != nil {
		return nil, err
	}
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(length[:]))
	_, err := io.ReadFull(c, answer)
	return answer, err
}

func parseReply(m *dnsmessage.Message) dnsReply {
	r := dnsReply{rcode: m.RCode}
	for _, a := range m.Answers {
		switch b := a.Body.(type) {
		case *dnsmessage.AResource:
			r.addrs = append(r.addrs, netip.AddrFrom4(b.A))
		case *dnsmessage.AAAAResource:
			r.addrs = append(r.addrs, netip.AddrFrom16(b.AAAA))
		case *dnsmessage.TXTResource:
			r.texts = append(r.texts, b.TXT...)
		}
	}
	return r
}
