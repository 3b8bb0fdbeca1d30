package global

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
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
