package dns

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/miekg/dns"
)

// encodeSubnet returns raw Client Subnet data, because the library would correct what must reach the server
// unchanged.
func encodeSubnet(family uint16, source, scope byte, octets ...byte) []byte {
	d := binary.BigEndian.AppendUint16(nil, family)
	return encodeOption(8, append(append(d, source, scope), octets...)...)
}

func TestMalformedSubnetIsRefused(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	q := plainQuery("chat.api.example.", dns.TypeA)
	cases := map[string][]byte{
		"family 0":                   encodeSubnet(0, 0, 0),
		"family 0 with a source":     encodeSubnet(0, 24, 0, 81, 2, 69),
		"family 3":                   encodeSubnet(3, 24, 0, 81, 2, 69),
		"source above 32":            encodeSubnet(1, 33, 0, 81, 2, 69, 1, 0),
		"source above 128":           encodeSubnet(2, 129, 0, make([]byte, 17)...),
		"scope in a query":           encodeSubnet(1, 24, 24, 81, 2, 69),
		"an octet too many":          encodeSubnet(1, 24, 0, 81, 2, 69, 0),
		"an octet too few":           encodeSubnet(1, 24, 0, 81, 2),
		"octets with source 0":       encodeSubnet(1, 0, 0, 81),
		"bits past source":           encodeSubnet(1, 20, 0, 81, 2, 0xf1),
		"bits past source, IPv6":     encodeSubnet(2, 33, 0, 0x20, 1, 0xd, 0xb8, 0x40),
		"shorter than its own fixed": encodeOption(8, 0, 1, 24),
		"empty":                      encodeOption(8),
		"twice":                      append(encodeSubnet(1, 24, 0, 81, 2, 69), encodeSubnet(1, 24, 0, 81, 2, 69)...),
	}
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			m := unpackMessage(t, exchangeUDP(t, s, appendOPT(q, 1232, 0, data)))
			if m.Rcode != dns.RcodeFormatError || m.IsEdns0() == nil || findSubnet(m) != nil || len(m.Answer) != 0 {
				t.Errorf("want FORMERR with a bare OPT, got %v", m)
			}
		})
	}
}

func TestSubnetSteersAndIsEchoed(t *testing.T) {
	s := startServer(t, newFakeSnapshot(), nil)
	cases := []struct {
		name   string
		qname  string
		qtype  uint16
		data   []byte
		scope  uint8
		answer string // address, or empty for none
	}{
		{"its client is steered by", "chat.api.example.", dns.TypeA, encodeSubnet(1, 24, 0, 81, 2, 69), 21, euAddr.String()},
		{"scope may exceed source", "chat.api.example.", dns.TypeA, encodeSubnet(1, 8, 0, 81), 21, euAddr.String()},
		{"other client", "chat.api.example.", dns.TypeA, encodeSubnet(1, 20, 0, 8, 8, 0xf0), 19, defaultAddr.String()},
		{"IPv6", "chat.api.example.", dns.TypeA, encodeSubnet(2, 56, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0), 44, euAddr.String()},
		{"source 0 means the resolver, scope 0", "chat.api.example.", dns.TypeA, encodeSubnet(1, 0, 0), 0, defaultAddr.String()},
		{"source 0 of IPv6", "chat.api.example.", dns.TypeA, encodeSubnet(2, 0, 0), 0, defaultAddr.String()},
		{"not tailored", "eu.chat.api.example.", dns.TypeA, encodeSubnet(1, 24, 0, 81, 2, 69), 0, euAddr.String()},
		{"negative", "chat.api.example.", dns.TypeAAAA, encodeSubnet(1, 24, 0, 81, 2, 69), 0, ""},
		{"no region", "idle.api.example.", dns.TypeA, encodeSubnet(1, 24, 0, 81, 2, 69), 0, ""},
		{"NXDOMAIN", "none.api.example.", dns.TypeA, encodeSubnet(1, 24, 0, 81, 2, 69), 0, ""},
		{"refused", "elsewhere.example.", dns.TypeA, encodeSubnet(1, 24, 0, 81, 2, 69), 0, ""},
		{"SOA", "api.example.", dns.TypeSOA, encodeSubnet(1, 24, 0, 81, 2, 69), 0, ""},
		{"NS", "api.example.", dns.TypeNS, encodeSubnet(2, 48, 0, 0x20, 1, 0xd, 0xb8, 0, 1), 0, ""},
		{"why is for one address alone", "_why.chat.api.example.", dns.TypeTXT, encodeSubnet(1, 24, 0, 81, 2, 69), 32, ""},
		{"whoami is for one address alone", "_whoami.api.example.", dns.TypeTXT, encodeSubnet(2, 8, 0, 0x20), 128, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			raw := exchangeUDP(t, s, appendOPT(plainQuery(c.qname, c.qtype), 1232, 0, c.data))
			m := unpackMessage(t, raw)
			want := slices.Clone(c.data)
			want[7] = c.scope
			if !bytes.Contains(raw, want) {
				t.Errorf("answer %x does not echo %x", raw, want)
			}
			if a, is := firstA(m); c.answer != a || is != (c.answer != "") {
				t.Errorf("answer %q, want %q", a, c.answer)
			}
		})
	}
	t.Run("absent is never sent", func(t *testing.T) {
		m := unpackMessage(t, exchangeUDP(t, s, appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 0, nil)))
		if findSubnet(m) != nil {
			t.Error("an option came that was not asked for")
		}
	})
	t.Run("not with another EDNS version", func(t *testing.T) {
		raw := appendOPT(plainQuery("chat.api.example.", dns.TypeA), 1232, 1<<16, encodeSubnet(1, 24, 0, 81, 2, 69))
		if m := unpackMessage(t, exchangeUDP(t, s, raw)); findSubnet(m) != nil || m.Rcode != dns.RcodeBadVers {
			t.Errorf("got %v", m)
		}
	})
}

func firstA(m *dns.Msg) (string, bool) {
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			return a.A.String(), true
		}
	}
	return "", false
}
