package global

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/consensus"
	"github.com/spillway-lb/spillway/geo"
	"github.com/spillway-lb/spillway/geo/geofiles"
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/testkit"
)

// shortTTLSpec has TTLs that let a key roll end within seconds.
func shortTTLSpec() string {
	text := strings.Replace(testSpecText(), "zone:\n", "zone:\n  ttl: 2s\n  dnssec: {key_ttl: 1s, ds_ttl: 1s, propagation: 1s}\n", 1)
	return strings.Replace(text, "  - name: chat.api.example.\n", "  - {name: chat.api.example., ttl: 5s}\n", 1)
}

// querySigned sends a query with DO set and returns the whole answer; nil if there is none.
func querySigned(s *Server, name string, qtype uint16) []byte {
	c, err := net.Dial("udp", s.DNSAddrs()[0].String())
	if err != nil {
		return nil
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout / 3))
	q := buildQuestion(name, qtype, clientAddrs["tokyo"])
	q[len(q)-15] = 0x80 // DO
	if _, err := c.Write(q); err != nil {
		return nil
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		return nil
	}
	return b[:n]
}

// isSigned looks for an RRSIG record: a pointer, its type and class IN.
func isSigned(answer []byte) bool { return bytes.Contains(answer, []byte{0, 46, 0, 1}) }

const (
	typeA      = 1
	typeAAAA   = 28
	typeDNSKEY = 48
)

// allAnswerAlike reports whether all nodes give the same answer, byte by byte, signed or not as requested.
func (p *testFleet) allAnswerAlike(name string, qtype uint16, signed bool) bool {
	var first []byte
	for _, s := range p.liveNodes() {
		b := querySigned(s, name, qtype)
		if len(b) < 12 || isSigned(b) != signed || first != nil && !bytes.Equal(first, b) {
			return false
		}
		first = b
	}
	return true
}

// awaitPhase waits until every node shows a phase of the signing.
func (p *testFleet) awaitPhase(t *testing.T, want consensus.SigningPhase) {
	t.Helper()
	defer func() {
		for _, s := range p.liveNodes() {
			if t.Failed() {
				a, err := s.dnssec.showDNSSEC(t.Context())
				t.Logf("%s: %+v, %v; raft %+v, silent %+v", s.cfg.Name, a, err, s.node.Status(), s.node.SilentVoters())
			}
		}
	}()
	testkit.Eventually(t, "the zone is "+string(want)+" at every node", func() bool {
		for _, s := range p.liveNodes() {
			if v := s.snapshot.Load(); v == nil || v.signingPhase() != string(want) {
				return false
			}
		}
		return true
	})
}

func TestDNSSEC(t *testing.T) {
	t.Parallel()
	p := newTestFleetFor(t, shortTTLSpec())
	p.awaitAllRegions()
	follower := p.nodes[0]
	if follower.IsLeader() {
		follower = p.nodes[1]
	}
	c := p.adminClient(follower)
	if a, err := c.GetDNSSEC(t.Context()); err != nil || a.Phase != phaseUnsigned || len(a.Keys)+len(a.DS) != 0 {
		t.Fatalf("at first: %+v, %v", a, err)
	}
	testkit.Eventually(t, "unsigned answers", func() bool { return p.allAnswerAlike(testService, typeA, false) })
	do := func(action string) (*admin.DNSSECAnswer, error) {
		return c.ChangeDNSSEC(t.Context(), admin.DNSSECRequest{Action: action, Reason: "test of " + action})
	}
	must := func(action string, want consensus.SigningPhase) *admin.DNSSECAnswer {
		t.Helper()
		a, err := do(action)
		if err != nil || a.Phase != string(want) {
			t.Fatalf("%s: %+v, %v; want %s", action, a, err, want)
		}
		return a
	}
	for _, early := range []string{"roll", "seen", "disable", "sing"} {
		if _, err := do(early); err == nil {
			t.Errorf("%s is taken of a zone that is not signed", early)
		}
	}

	if a := must("enable", consensus.PhaseNew); len(a.DS) != 0 || len(a.Keys) != 1 {
		t.Errorf("the parent is to have a DS too early: %+v", a)
	}
	signed := func(when string) {
		t.Helper()
		for name, qtype := range map[string]uint16{testService: typeA, "nope.api.example.": typeA, "tokyo." + testService: typeAAAA, "api.example.": typeDNSKEY} {
			testkit.Eventually(t, when+": one signed answer for "+name, func() bool { return p.allAnswerAlike(name, qtype, true) })
		}
	}
	signed("when enabled")
	p.awaitPhase(t, consensus.PhasePublish)
	first, err := c.GetDNSSEC(t.Context())
	if err != nil || len(first.DS) != 1 || !strings.HasPrefix(first.DS[0], fmt.Sprintf("api.example. 1 IN DS %d 13 2 ", first.Keys[0].Tag)) {
		t.Fatalf("to be published: %+v, %v", first, err)
	}
	must("seen", consensus.PhaseSigned)
	must("roll", consensus.PhaseRolling)
	signed("in a roll")
	p.awaitPhase(t, consensus.PhaseReplace)
	second, err := c.GetDNSSEC(t.Context())
	if err != nil || len(second.Keys) != 2 || len(second.DS) != 1 || second.DS[0] == first.DS[0] || !second.Keys[0].SignsAnswers || second.Keys[1].Tag != first.Keys[0].Tag {
		t.Fatalf("to be replaced: %+v, %v", second, err)
	}
	signed("with the other key")
	must("seen", consensus.PhaseRetiring)
	p.awaitPhase(t, consensus.PhaseSigned)
	if a, err := c.GetDNSSEC(t.Context()); err != nil || len(a.Keys) != 1 || a.Keys[0].Tag != second.Keys[0].Tag {
		t.Errorf("after the roll: %+v, %v", a, err)
	}
	renamed := strings.ReplaceAll(shortTTLSpec(), "api.example.", "llm.example.")
	if _, err := c.ApplySpec(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: renamed}); err == nil || !strings.Contains(err.Error(), "signed as api.example.") {
		t.Errorf("the zone is renamed under its signatures: %v", err)
	}
	p.testZoneSecrets(t, c)

	must("disable", consensus.PhaseLeaving)
	must("enable", consensus.PhasePublish)
	must("disable", consensus.PhaseLeaving)
	signed("when it is about to end")
	must("seen", consensus.PhaseUnsigning)
	p.awaitPhase(t, phaseUnsigned)
	testkit.Eventually(t, "unsigned answers again", func() bool { return p.allAnswerAlike(testService, typeA, false) })
}

// testZoneSecrets searches for the key in all output for operators.
func (p *testFleet) testZoneSecrets(t *testing.T, c *admin.Client) {
	t.Helper()
	secret := p.nodes[0].snapshot.Load().state.Signing.Keys[0].Secret
	audit, err := c.ListAudit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spec, err := c.GetSpec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	status, err := c.GetStatus(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dnssec, err := c.GetDNSSEC(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, r := range audit.Records {
		if strings.HasPrefix(r.Action, "dnssec") {
			actions = append(actions, strings.TrimPrefix(r.Action, "dnssec ")+" "+r.Reason)
		}
	}
	for _, want := range []string{"enable test of enable", "roll test of roll", "seen test of seen", "step the waiting time of phase rolling has passed"} {
		if !strings.Contains(strings.Join(actions, "; "), want) {
			t.Errorf("the audit has %q, and not %q", actions, want)
		}
	}
	b, err := json.Marshal([]any{audit, spec, status, dnssec, p.gateways["tokyo"].directive.Load()})
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{base64.StdEncoding.EncodeToString(secret)[:20], fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret)} {
		if strings.Contains(string(b), form) {
			t.Errorf("the key is shown as %s", form)
		}
	}
}

// TestNodeWithoutRaftSignsFromTheBackup: a node that restarts alone gives no answer that validators would reject as
// forged, and the backup file that makes this possible is readable by its owner only.
func TestNodeWithoutRaftSignsFromTheBackup(t *testing.T) {
	p := &testFleet{t: t, dir: t.TempDir()}
	var err error
	if p.ca, err = identity.NewDevCA(p.dir, "test.example"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b := newStateBackup(dir, telemetry.LoggerOrDiscard(nil))
	err = b.writeState(&consensus.State{Index: 7, SpecVersion: 3, Spec: []byte(testSpecText()), Signing: &consensus.ZoneSigning{
		Zone: "api.example.", Phase: consensus.PhaseSigned, Keys: []consensus.ZoneKey{{Secret: bytes.Repeat([]byte{9}, 32)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "last-state.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup has the mode %v, %v", info.Mode(), err)
	}
	atlas, err := geofiles.NewLiveAtlas(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Name: "g1", Dir: dir, Certs: p.issueCerts(identity.ID{Role: identity.RoleGlobal, Name: "g1"}), Atlas: atlas,
		RaftListen: "127.0.0.1:0", UplinkListen: "127.0.0.1:0", DNSListen: []string{"127.0.0.1:0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.SetPeers([]consensus.RaftPeer{{ID: "g1", Addr: s.RaftAddr().String()}, {ID: "g2", Addr: "127.0.0.1:1"}, {ID: "g3", Addr: "127.0.0.1:2"}})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.stopNode(s)
	testkit.Eventually(t, "a single node signs", func() bool { return isSigned(querySigned(s, testService, typeA)) })
	if info, err := os.Stat(filepath.Join(dir, "snapshots")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of snapshots has the mode %v, %v", info.Mode(), err)
	}
}

// TestSnapshotsShareSignatures: an answer that an earlier snapshot has signed is not signed again.
func TestSnapshotsShareSignatures(t *testing.T) {
	t.Parallel()
	p := newTestFleet(t)
	p.awaitAllRegions()
	s := p.awaitLeader()
	if _, err := p.adminClient(s).ChangeDNSSEC(t.Context(), admin.DNSSECRequest{Action: "enable"}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "a signed answer", func() bool { return isSigned(querySigned(s, testService, typeA)) })
	made, before := s.signatures.Made(), s.snapshot.Load()
	begun := time.Now()
	for s.snapshot.Load() == before || time.Since(begun) < 500*time.Millisecond {
		if b := querySigned(s, testService, typeA); !isSigned(b) || binary.BigEndian.Uint16(b[6:]) != 2 {
			t.Fatalf("answered %x", b)
		}
	}
	if now := s.signatures.Made(); now != made {
		t.Errorf("%d signatures were made for what was signed", now-made)
	}
}

// In these tests, third-party validators check a signed fleet on loopback. Debian has them in the packages
// bind9-dnsutils (delv, dig), unbound and dnsviz.

// requireTools skips a test whose tool is not installed.
func requireTools(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: apt-get install bind9-dnsutils unbound dnsviz", tool)
		}
	}
}

// runTool runs a program and returns its output, including errors.
func runTool(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, _ := exec.CommandContext(ctx, name, args...).CombinedOutput() // the output is more informative than the status
	return string(out)
}

// newSignedFleet is a fleet with a signed zone whose parent would show its DS.
func newSignedFleet(t *testing.T) (*testFleet, *admin.Client) {
	t.Helper()
	p := newTestFleetFor(t, shortTTLSpec())
	p.awaitAllRegions()
	c := p.adminClient(p.nodes[0])
	p.changeDNSSEC(t, c, "enable")
	p.awaitPhase(t, consensus.PhasePublish)
	p.changeDNSSEC(t, c, "seen")
	p.awaitPhase(t, consensus.PhaseSigned)
	return p, c
}

func (p *testFleet) changeDNSSEC(t *testing.T, c *admin.Client, action string) {
	t.Helper()
	testkit.Eventually(t, "a leader accepts dnssec "+action, func() bool {
		_, err := c.ChangeDNSSEC(t.Context(), admin.DNSSECRequest{Action: action, Reason: "test"})
		if err != nil && !strings.Contains(err.Error(), consensus.ErrNoLeader.Error()) {
			t.Fatal(err)
		}
		return err == nil
	})
}

func fetchDNSSEC(t *testing.T, c *admin.Client) *admin.DNSSECAnswer {
	t.Helper()
	a, err := c.GetDNSSEC(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func writeTempFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// delvCases are names, types, and the result of delv for them.
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
	requireTools(t, "delv")
	t.Parallel()
	p, c := newSignedFleet(t)
	fields := strings.Fields(fetchDNSSEC(t, c).Keys[0].Record)
	anchor := writeTempFile(t, "anchor", fmt.Sprintf("trust-anchors { \"api.example.\" static-key %s %s %s \"%s\"; };\n", fields[4], fields[5], fields[6], fields[7]))
	for _, s := range p.nodes {
		for _, q := range delvCases {
			out := runTool(t, "delv", "@127.0.0.1", "-p", fmt.Sprint(s.DNSAddrs()[0].Port()), "-a", anchor, "+root=api.example.", q.name, q.qtype)
			if !strings.Contains(out, q.want) {
				t.Errorf("%s %s at %s: want %q, delv prints\n%s", q.name, q.qtype, s.cfg.Name, q.want, out)
			}
		}
	}
	wrong := writeTempFile(t, "wrong", fmt.Sprintf("trust-anchors { \"api.example.\" static-key 257 3 13 \"%s\"; };\n", strings.Repeat("A", 85)+"E="))
	if out := runTool(t, "delv", "@127.0.0.1", "-p", fmt.Sprint(p.nodes[0].DNSAddrs()[0].Port()), "-a", wrong, "+root=api.example.", testService, "A"); strings.Contains(out, "; fully validated") {
		t.Errorf("delv accepts any key:\n%s", out)
	}
}

// startUnbound starts a validating resolver on loopback that trusts one DS. It cannot choose a free port itself, and
// a port that was free a moment ago may be taken: then unbound exits, and the next port is tried.
func (p *testFleet) startUnbound(t *testing.T, ds string) (port string) {
	t.Helper()
	for range 10 {
		if port := p.startUnboundOn(t, freePort(t), ds); port != "" {
			return port
		}
	}
	t.Fatal("unbound found no port free, 10 times")
	return ""
}

// freePort returns a port that is free for UDP and TCP, as a resolver needs it, outside the range that the system
// assigns.
func freePort(t *testing.T) string {
	t.Helper()
	for {
		tcp, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(10000)))
		if err != nil {
			continue // the port is taken
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

// startUnboundOn starts unbound and waits for its first answer. It returns no port if that was taken.
func (p *testFleet) startUnboundOn(t *testing.T, port, ds string) string {
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
			t.Logf("unbound prints\n%s", log.String())
		}
	})
	portTaken := false
	testkit.Eventually(t, "unbound answers", func() bool {
		select {
		case <-ended:
			if portTaken = strings.Contains(log.String(), "Address already in use"); !portTaken {
				t.Fatal("unbound ended by itself")
			}
			return true
		default:
			return strings.Contains(digQuery(t, port, testService, "A"), "status: NOERROR")
		}
	})
	if portTaken {
		return ""
	}
	return port
}

func digQuery(t *testing.T, port, name, qtype string) string {
	t.Helper()
	return runTool(t, "dig", "@127.0.0.1", "-p", port, "+dnssec", "+tries=1", "+time=5", name, qtype)
}

// checkAllAuthentic queries unbound for everything, and checks that all answers are authentic.
func checkAllAuthentic(t *testing.T, when, port string) {
	t.Helper()
	for _, q := range []struct{ name, qtype, status string }{
		{testService, "A", "NOERROR"},
		{"tokyo." + testService, "A", "NOERROR"},
		{testService, "AAAA", "NOERROR"},
		{testService, "HTTPS", "NOERROR"},
		{"api.example.", "SOA", "NOERROR"},
		{"api.example.", "NS", "NOERROR"},
		{"api.example.", "DNSKEY", "NOERROR"},
		{"api.example.", "TXT", "NOERROR"},
		{fmt.Sprintf("nope%d.api.example.", time.Now().UnixNano()), "A", ""},
	} {
		out := digQuery(t, port, q.name, q.qtype)
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

// TestUnboundValidatesThroughAKeyRoll queries a validating resolver before, during and after a key roll. Its trust
// anchor replaces the parent's DS: while that is to be replaced, both must work.
func TestUnboundValidatesThroughAKeyRoll(t *testing.T) {
	requireTools(t, "unbound", "dig")
	t.Parallel()
	p, c := newSignedFleet(t)
	old := p.startUnbound(t, fetchDNSSEC(t, c).DS[0])
	checkAllAuthentic(t, "signed", old)
	p.changeDNSSEC(t, c, "roll")
	for fetchDNSSEC(t, c).Phase == string(consensus.PhaseRolling) {
		checkAllAuthentic(t, "rolling", old)
	}
	p.awaitPhase(t, consensus.PhaseReplace)
	next := p.startUnbound(t, fetchDNSSEC(t, c).DS[0])
	checkAllAuthentic(t, "with the old DS", old)
	checkAllAuthentic(t, "with the new DS", next)
	p.changeDNSSEC(t, c, "seen")
	for fetchDNSSEC(t, c).Phase == string(consensus.PhaseRetiring) {
		checkAllAuthentic(t, "retiring", next)
	}
	testkit.Eventually(t, "the old DS fails once the keys' TTL is over: otherwise this test would see nothing", func() bool {
		return strings.Contains(digQuery(t, old, fmt.Sprintf("late%d.api.example.", time.Now().UnixNano()), "A"), "SERVFAIL")
	})
	checkAllAuthentic(t, "after the roll", next)
}

// TestDNSViz has dnsviz run all its checks against all nodes.
func TestDNSViz(t *testing.T) {
	requireTools(t, "dnsviz")
	t.Parallel()
	p, c := newSignedFleet(t)
	var servers []string
	for i, s := range p.nodes {
		servers = append(servers, fmt.Sprintf("ns%d.api.example=127.0.0.1:%d", i+1, s.DNSAddrs()[0].Port()))
	}
	probe := filepath.Join(t.TempDir(), "probe.json")
	log := runTool(t, "dnsviz", "probe", "-4", "-A", "-a", ".", "-o", probe, "-x", "api.example+:"+strings.Join(servers, ","), "api.example", "chat.api.example")
	trust := writeTempFile(t, "trust", fetchDNSSEC(t, c).Keys[0].Record+"\n")
	sound := 0
	out := runTool(t, "dnsviz", "print", "-t", trust, "-r", probe)
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
	grok := runTool(t, "dnsviz", "grok", "-l", "warning", "-t", trust, "-r", probe)
	if strings.Contains(grok, "is required, but not installed") {
		t.Skipf("dnsviz grok needs pygraphviz, and dnsviz 0.9.4 does not work with versions from 1.7 on\n%s", grok)
	}
	if strings.Contains(grok, `"errors"`) || strings.Contains(grok, `"warnings"`) {
		t.Errorf("dnsviz finds fault:\n%s", grok)
	}
}
