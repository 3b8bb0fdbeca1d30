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

// optionSubnet is EDNS Client Subnet, RFC 7871.
const optionSubnet = 8

// reply is what a name server said.
type reply struct {
	rcode dnsmessage.RCode
	addrs []netip.Addr
	texts []string
}

// text is the value of the first "key=value" text, or empty.
func (r reply) text(key string) string {
	for _, s := range r.texts {
		if k, v, _ := strings.Cut(s, "="); k == key {
			return v
		}
	}
	return ""
}

// ask sends one question to one name server over network ("udp" or "tcp"), on behalf of a client in subnet.
func ask(network string, server netip.AddrPort, name string, kind dnsmessage.Type, subnet netip.Prefix) (reply, error) {
	id := uint16(rand.Uint32())
	question, err := pack(id, name, kind, subnet)
	if err != nil {
		return reply{}, err
	}
	c, err := net.DialTimeout(network, server.String(), time.Second)
	if err != nil {
		return reply{}, err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return reply{}, err
	}
	answer, err := exchange(c, network, question)
	if err != nil {
		return reply{}, err
	}
	var m dnsmessage.Message
	if err := m.Unpack(answer); err != nil {
		return reply{}, fmt.Errorf("answer of %s: %w", server, err)
	}
	if m.ID != id || !m.Response {
		return reply{}, fmt.Errorf("%s answered something else: %s", server, m.GoString())
	}
	return read(&m), nil
}

func pack(id uint16, name string, kind dnsmessage.Type, subnet netip.Prefix) ([]byte, error) {
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
	opt := dnsmessage.Resource{Body: &dnsmessage.OPTResource{Options: []dnsmessage.Option{{Code: optionSubnet, Data: option}}}}
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

func exchange(c net.Conn, network string, question []byte) ([]byte, error) {
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

func read(m *dnsmessage.Message) reply {
	r := reply{rcode: m.RCode}
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
