package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

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
