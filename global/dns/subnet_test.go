package dns

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/miekg/dns"
)

// ecs is raw Client Subnet data: what the library would tidy up must reach the server as it is.
func ecs(family uint16, source, scope byte, octets ...byte) []byte {
	d := binary.BigEndian.AppendUint16(nil, family)
	return opt1(8, append(append(d, source, scope), octets...)...)
}

func TestSubnetIsStrict(t *testing.T) {
	s := start(t, newWorld(), nil)
	q := query1("chat.api.example.", dns.TypeA)
	cases := map[string][]byte{
		"family 0":                   ecs(0, 0, 0),
		"family 0 with a source":     ecs(0, 24, 0, 81, 2, 69),
		"family 3":                   ecs(3, 24, 0, 81, 2, 69),
		"source above 32":            ecs(1, 33, 0, 81, 2, 69, 1, 0),
		"source above 128":           ecs(2, 129, 0, make([]byte, 17)...),
		"scope in a query":           ecs(1, 24, 24, 81, 2, 69),
		"an octet too many":          ecs(1, 24, 0, 81, 2, 69, 0),
		"an octet too few":           ecs(1, 24, 0, 81, 2),
		"octets with source 0":       ecs(1, 0, 0, 81),
		"bits past source":           ecs(1, 20, 0, 81, 2, 0xf1),
		"bits past source, IPv6":     ecs(2, 33, 0, 0x20, 1, 0xd, 0xb8, 0x40),
		"shorter than its own fixed": opt1(8, 0, 1, 24),
		"empty":                      opt1(8),
		"twice":                      append(ecs(1, 24, 0, 81, 2, 69), ecs(1, 24, 0, 81, 2, 69)...),
	}
	for name, data := range cases {
		t.Run(name, func(t *testing.T) {
			m := unpack(t, exchangeUDP(t, s, edns(q, 1232, 0, data)))
			if m.Rcode != dns.RcodeFormatError || m.IsEdns0() == nil || subnetOf(m) != nil || len(m.Answer) != 0 {
				t.Errorf("want FORMERR with a bare OPT, got %v", m)
			}
		})
	}
}

func TestSubnetSteersAndIsEchoed(t *testing.T) {
	s := start(t, newWorld(), nil)
	cases := []struct {
		name   string
		qname  string
		qtype  uint16
		data   []byte
		scope  uint8
		answer string // address, or empty for none
	}{
		{"its client is steered by", "chat.api.example.", dns.TypeA, ecs(1, 24, 0, 81, 2, 69), 21, euro.String()},
		{"scope may exceed source", "chat.api.example.", dns.TypeA, ecs(1, 8, 0, 81), 21, euro.String()},
		{"other client", "chat.api.example.", dns.TypeA, ecs(1, 20, 0, 8, 8, 0xf0), 19, home.String()},
		{"IPv6", "chat.api.example.", dns.TypeA, ecs(2, 56, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0), 44, euro.String()},
		{"source 0 means the resolver, scope 0", "chat.api.example.", dns.TypeA, ecs(1, 0, 0), 0, home.String()},
		{"source 0 of IPv6", "chat.api.example.", dns.TypeA, ecs(2, 0, 0), 0, home.String()},
		{"not tailored", "eu.chat.api.example.", dns.TypeA, ecs(1, 24, 0, 81, 2, 69), 0, euro.String()},
		{"negative", "chat.api.example.", dns.TypeAAAA, ecs(1, 24, 0, 81, 2, 69), 0, ""},
		{"no region", "idle.api.example.", dns.TypeA, ecs(1, 24, 0, 81, 2, 69), 0, ""},
		{"NXDOMAIN", "none.api.example.", dns.TypeA, ecs(1, 24, 0, 81, 2, 69), 0, ""},
		{"refused", "elsewhere.example.", dns.TypeA, ecs(1, 24, 0, 81, 2, 69), 0, ""},
		{"SOA", "api.example.", dns.TypeSOA, ecs(1, 24, 0, 81, 2, 69), 0, ""},
		{"NS", "api.example.", dns.TypeNS, ecs(2, 48, 0, 0x20, 1, 0xd, 0xb8, 0, 1), 0, ""},
		{"why is for one address alone", "_why.chat.api.example.", dns.TypeTXT, ecs(1, 24, 0, 81, 2, 69), 32, ""},
		{"whoami is for one address alone", "_whoami.api.example.", dns.TypeTXT, ecs(2, 8, 0, 0x20), 128, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			raw := exchangeUDP(t, s, edns(query1(c.qname, c.qtype), 1232, 0, c.data))
			m := unpack(t, raw)
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
		m := unpack(t, exchangeUDP(t, s, edns(query1("chat.api.example.", dns.TypeA), 1232, 0, nil)))
		if subnetOf(m) != nil {
			t.Error("an option came that was not asked for")
		}
	})
	t.Run("not with another EDNS version", func(t *testing.T) {
		raw := edns(query1("chat.api.example.", dns.TypeA), 1232, 1<<16, ecs(1, 24, 0, 81, 2, 69))
		if m := unpack(t, exchangeUDP(t, s, raw)); subnetOf(m) != nil || m.Rcode != dns.RcodeBadVers {
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
