package global

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/internal/admin"
)

// The tests here have validators that others wrote judge a signed planet on loopback. Debian has them in the packages
// bind9-dnsutils (delv, dig), unbound and dnsviz.

// need skips a test whose tool is not installed.
func need(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: apt-get install bind9-dnsutils unbound dnsviz", tool)
		}
	}
}

// tool runs a program and returns what it wrote, errors included.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, _ := exec.CommandContext(ctx, name, args...).CombinedOutput() // what it wrote says more than its status
	return string(out)
}

// signedPlanet is a planet whose zone is signed, and whose parent would show its DS.
func signedPlanet(t *testing.T) (*planet, *admin.Client) {
	t.Helper()
	p := newPlanetOf(t, hastySpec())
	p.settle()
	c := p.admin(p.nodes[0])
	p.change(t, c, "enable")
	p.phase(t, consensus.PhasePublish)
	p.change(t, c, "seen")
	p.phase(t, consensus.PhaseSigned)
	return p, c
}

func (p *planet) change(t *testing.T, c *admin.Client, action string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		_, err := c.ChangeDNSSEC(t.Context(), admin.DNSSECRequest{Action: action, Reason: "test"})
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), consensus.ErrNoLeader.Error()) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func shown(t *testing.T, c *admin.Client) *admin.DNSSECAnswer {
	t.Helper()
	a, err := c.DNSSEC(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// delvCases are names, types, and what delv says of them.
var delvCases = []struct{ name, qtype, want string }{
	{"chat.api.example.", "A", "; fully validated"},
	{"cHaT.Api.eXample.", "A", "; fully validated"},
	{"tokyo.chat.api.example.", "A", "; fully validated"},
	{"api.example.", "SOA", "; fully validated"},
	{"api.example.", "NS", "; fully validated"},
	{"api.example.", "DNSKEY", "; fully validated"},
	{"api.example.", "CDS", "; fully validated"},
	{"_why.chat.api.example.", "TXT", "; fully validated"},
	{"chat.api.example.", "AAAA", "; negative response, fully validated"},
	{"api.example.", "MX", "; negative response, fully validated"},
	{"nope.api.example.", "A", "; negative response, fully validated"},
	{"a.b.c.nope.api.example.", "TXT", "; negative response, fully validated"},
}

func TestDelvValidates(t *testing.T) {
	need(t, "delv")
	t.Parallel()
	p, c := signedPlanet(t)
	fields := strings.Fields(shown(t, c).Keys[0].Record)
	anchor := write(t, "anchor", fmt.Sprintf("trust-anchors { \"api.example.\" static-key %s %s %s \"%s\"; };\n", fields[4], fields[5], fields[6], fields[7]))
	for _, s := range p.nodes {
		for _, q := range delvCases {
			out := tool(t, "delv", "@127.0.0.1", "-p", fmt.Sprint(s.DNSAddrs()[0].Port()), "-a", anchor, "+root=api.example.", q.name, q.qtype)
			if !strings.Contains(out, q.want) {
				t.Errorf("%s %s at %s: want %q, delv says\n%s", q.name, q.qtype, s.cfg.Name, q.want, out)
			}
		}
	}
	wrong := write(t, "wrong", fmt.Sprintf("trust-anchors { \"api.example.\" static-key 257 3 13 \"%s\"; };\n", strings.Repeat("A", 85)+"E="))
	if out := tool(t, "delv", "@127.0.0.1", "-p", fmt.Sprint(p.nodes[0].DNSAddrs()[0].Port()), "-a", wrong, "+root=api.example.", service, "A"); strings.Contains(out, "; fully validated") {
		t.Errorf("delv believes any key:\n%s", out)
	}
}

// unbound is a validating resolver on loopback that trusts one DS. It cannot be told to draw a port, and one that was
// free a moment ago may not be now: then it says so and ends, and is given another.
func (p *planet) unbound(t *testing.T, ds string) (port string) {
	t.Helper()
	for range 10 {
		if port := p.unboundAt(t, freePort(t), ds); port != "" {
			return port
		}
	}
	t.Fatal("unbound found no port free, 10 times")
	return ""
}

// freePort is free for UDP and for TCP, as a resolver needs it.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		tcp, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(tcp.Addr().String())
		udp, err := net.ListenPacket("udp4", "127.0.0.1:"+port)
		tcp.Close()
		if err == nil {
			udp.Close()
			return port
		}
	}
}

// unboundAt starts unbound and waits for its first answer. It returns no port where that was taken.
func (p *planet) unboundAt(t *testing.T, port, ds string) string {
	t.Helper()
	dir := t.TempDir()
	conf := &strings.Builder{}
	fmt.Fprintf(conf, "server:\n interface: 127.0.0.1@%s\n do-daemonize: no\n username: \"\"\n chroot: \"\"\n directory: %q\n pidfile: \"\"\n use-syslog: no\n", port, dir)
	fmt.Fprintf(conf, " do-not-query-localhost: no\n module-config: \"validator iterator\"\n trust-anchor: %q\n val-log-level: 2\n num-threads: 1\n do-ip6: no\n", ds)
	fmt.Fprintf(conf, "remote-control:\n control-enable: no\nstub-zone:\n name: \"api.example.\"\n")
	for _, s := range p.nodes {
		fmt.Fprintf(conf, " stub-addr: 127.0.0.1@%d\n", s.DNSAddrs()[0].Port())
	}
	file := filepath.Join(dir, "unbound.conf")
	if err := os.WriteFile(file, []byte(conf.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unbound", "-d", "-p", "-c", file)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("unbound says\n%s", log.String())
		}
	})
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		select {
		case <-ended:
			if strings.Contains(log.String(), "Address already in use") {
				return ""
			}
			t.Fatal("unbound ended by itself")
		default:
		}
		if strings.Contains(dig(t, port, service, "A"), "status: NOERROR") {
			return port
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("after 20s unbound gives no answer")
	return ""
}

func dig(t *testing.T, port, name, qtype string) string {
	t.Helper()
	return tool(t, "dig", "@127.0.0.1", "-p", port, "+dnssec", "+tries=1", "+time=5", name, qtype)
}

// secure asks unbound for everything, and holds that all of it is authentic.
func secure(t *testing.T, when, port string) {
	t.Helper()
	for _, q := range []struct{ name, qtype, status string }{
		{service, "A", "NOERROR"},
		{"tokyo." + service, "A", "NOERROR"},
		{service, "AAAA", "NOERROR"},
		{service, "HTTPS", "NOERROR"},
		{"api.example.", "SOA", "NOERROR"},
		{"api.example.", "NS", "NOERROR"},
		{"api.example.", "DNSKEY", "NOERROR"},
		{"api.example.", "TXT", "NOERROR"},
		{fmt.Sprintf("nope%d.api.example.", time.Now().UnixNano()), "A", ""},
	} {
		out := dig(t, port, q.name, q.qtype)
		authentic := false
		for line := range strings.Lines(out) {
			flags, _, _ := strings.Cut(line, ";; flags: ")
			if rest, ok := strings.CutPrefix(line, ";; flags: "); ok && flags == "" {
				set, _, _ := strings.Cut(rest, ";")
				authentic = strings.Contains(" "+set+" ", " ad ")
			}
		}
		if !authentic || !strings.Contains(out, "status: "+q.status) || strings.Contains(out, "SERVFAIL") {
			t.Errorf("%s, %s %s: unbound does not find it authentic:\n%s", when, q.name, q.qtype, out)
		}
	}
}

// TestUnboundValidatesThroughARoll asks a validating resolver before, in and after a roll. Its trust anchor stands for
// the parent's DS: where that is to be replaced, both must do.
func TestUnboundValidatesThroughARoll(t *testing.T) {
	need(t, "unbound", "dig")
	t.Parallel()
	p, c := signedPlanet(t)
	old := p.unbound(t, shown(t, c).DS[0])
	secure(t, "signed", old)
	p.change(t, c, "roll")
	for shown(t, c).Phase == string(consensus.PhaseRolling) {
		secure(t, "rolling", old)
	}
	p.phase(t, consensus.PhaseReplace)
	next := p.unbound(t, shown(t, c).DS[0])
	secure(t, "with the old DS", old)
	secure(t, "with the new DS", next)
	p.change(t, c, "seen")
	for shown(t, c).Phase == string(consensus.PhaseRetiring) {
		secure(t, "retiring", next)
	}
	time.Sleep(1100 * time.Millisecond) // the TTL of the keys
	secure(t, "after the roll", next)
	if out := dig(t, old, fmt.Sprintf("late%d.api.example.", time.Now().UnixNano()), "A"); !strings.Contains(out, "SERVFAIL") {
		t.Errorf("the old DS still does: this test would see nothing\n%s", out)
	}
}

// TestDNSViz has dnsviz look at everything that it knows to look at, at all nodes.
func TestDNSViz(t *testing.T) {
	need(t, "dnsviz")
	t.Parallel()
	p, c := signedPlanet(t)
	var servers []string
	for i, s := range p.nodes {
		servers = append(servers, fmt.Sprintf("ns%d.api.example=127.0.0.1:%d", i+1, s.DNSAddrs()[0].Port()))
	}
	probe := filepath.Join(t.TempDir(), "probe.json")
	log := tool(t, "dnsviz", "probe", "-4", "-A", "-a", ".", "-o", probe, "-x", "api.example+:"+strings.Join(servers, ","), "api.example", "chat.api.example")
	trust := write(t, "trust", shown(t, c).Keys[0].Record+"\n")
	sound := 0
	out := tool(t, "dnsviz", "print", "-t", trust, "-r", probe)
	for line := range strings.Lines(out) {
		_, mark, found := strings.Cut(line, "[")
		switch {
		case !found:
		case strings.HasPrefix(mark, ".]"):
			sound++
		default:
			t.Errorf("dnsviz finds fault: %s", line)
		}
	}
	if sound < 40 || !strings.Contains(out, "RRSIG NSEC TYPE128") || !strings.Contains(out, "A: 127.0.") {
		t.Errorf("dnsviz found %d things to be sound\n%s\n%s", sound, log, out)
	}
	grok := tool(t, "dnsviz", "grok", "-l", "warning", "-t", trust, "-r", probe)
	if strings.Contains(grok, "is required, but not installed") {
		t.Skipf("dnsviz grok wants pygraphviz, and dnsviz 0.9.4 knows none from 1.7 on\n%s", grok)
	}
	if strings.Contains(grok, `"errors"`) || strings.Contains(grok, `"warnings"`) {
		t.Errorf("dnsviz finds fault:\n%s", grok)
	}
}
