package main

import (
	"errors"
	"fmt"
	"net"
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
