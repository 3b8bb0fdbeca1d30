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
	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/telemetry"
)

// hastySpec has TTLs that let a roll end within seconds.
func hastySpec() string {
	text := strings.Replace(specText(), "zone:\n", "zone:\n  ttl: 2s\n  dnssec: {key_ttl: 1s, ds_ttl: 1s, propagation: 1s}\n", 1)
	return strings.Replace(text, "  - name: chat.api.example.\n", "  - {name: chat.api.example., ttl: 5s}\n", 1)
}

// signedAnswer asks with DO and returns the whole answer; nil when there is none.
func signedAnswer(s *Server, name string, qtype uint16) []byte {
	c, err := net.Dial("udp", s.DNSAddrs()[0].String())
	if err != nil {
		return nil
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	q := question(name, qtype, clients["tokyo"])
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

// alike reports whether all nodes give one answer, byte by byte, which is signed or is not.
func (p *planet) alike(name string, qtype uint16, signed bool) bool {
	var first []byte
	for _, s := range p.alive() {
		b := signedAnswer(s, name, qtype)
		if len(b) < 12 || isSigned(b) != signed || first != nil && !bytes.Equal(first, b) {
			return false
		}
		first = b
	}
	return true
}

// phase waits until every node shows a phase of the signing.
func (p *planet) phase(t *testing.T, want consensus.Phase) {
	t.Helper()
	defer func() {
		for _, s := range p.alive() {
			if t.Failed() {
				a, err := s.dnssec(t.Context())
				t.Logf("%s: %+v, %v; raft %+v, silent %+v", s.cfg.Name, a, err, s.node.Status(), s.node.Silent())
			}
		}
	}()
	eventually(t, 2*time.Minute, "the zone is "+string(want)+" at every node", func() bool {
		for _, s := range p.alive() {
			if v := s.view.Load(); v == nil || v.phase() != string(want) {
				return false
			}
		}
		return true
	})
}

func TestDNSSEC(t *testing.T) {
	t.Parallel()
	p := newPlanetOf(t, hastySpec())
	p.settle()
	follower := p.nodes[0]
	if follower.IsLeader() {
		follower = p.nodes[1]
	}
	c := p.admin(follower)
	if a, err := c.DNSSEC(t.Context()); err != nil || a.Phase != unsigned || len(a.Keys)+len(a.DS) != 0 {
		t.Fatalf("at first: %+v, %v", a, err)
	}
	eventually(t, 5*time.Second, "unsigned answers", func() bool { return p.alike(service, typeA, false) })
	do := func(action string) (*admin.DNSSECAnswer, error) {
		return c.ChangeDNSSEC(t.Context(), admin.DNSSECRequest{Action: action, Reason: "test of " + action})
	}
	must := func(action string, want consensus.Phase) *admin.DNSSECAnswer {
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
		for name, qtype := range map[string]uint16{service: typeA, "nope.api.example.": typeA, "tokyo." + service: typeAAAA, "api.example.": typeDNSKEY} {
			eventually(t, 10*time.Second, when+": one signed answer for "+name, func() bool { return p.alike(name, qtype, true) })
		}
	}
	signed("when enabled")
	p.phase(t, consensus.PhasePublish)
	first, err := c.DNSSEC(t.Context())
	if err != nil || len(first.DS) != 1 || !strings.HasPrefix(first.DS[0], fmt.Sprintf("api.example. 1 IN DS %d 13 2 ", first.Keys[0].Tag)) {
		t.Fatalf("to be published: %+v, %v", first, err)
	}
	must("seen", consensus.PhaseSigned)
	must("roll", consensus.PhaseRolling)
	signed("in a roll")
	p.phase(t, consensus.PhaseReplace)
	second, err := c.DNSSEC(t.Context())
	if err != nil || len(second.Keys) != 2 || len(second.DS) != 1 || second.DS[0] == first.DS[0] || !second.Keys[0].SignsAnswers || second.Keys[1].Tag != first.Keys[0].Tag {
		t.Fatalf("to be replaced: %+v, %v", second, err)
	}
	signed("with the other key")
	must("seen", consensus.PhaseRetiring)
	p.phase(t, consensus.PhaseSigned)
	if a, err := c.DNSSEC(t.Context()); err != nil || len(a.Keys) != 1 || a.Keys[0].Tag != second.Keys[0].Tag {
		t.Errorf("after the roll: %+v, %v", a, err)
	}
	renamed := strings.ReplaceAll(hastySpec(), "api.example.", "llm.example.")
	if _, err := c.Apply(t.Context(), admin.ApplyRequest{Name: "s.yaml", Text: renamed}); err == nil || !strings.Contains(err.Error(), "signed as api.example.") {
		t.Errorf("the zone is renamed under its signatures: %v", err)
	}
	p.testZoneSecrets(t, c)

	must("disable", consensus.PhaseLeaving)
	must("enable", consensus.PhasePublish)
	must("disable", consensus.PhaseLeaving)
	signed("when it is about to end")
	must("seen", consensus.PhaseUnsigning)
	p.phase(t, unsigned)
	eventually(t, 5*time.Second, "unsigned answers again", func() bool { return p.alike(service, typeA, false) })
}

// testZoneSecrets looks for the key in all that operators are shown.
func (p *planet) testZoneSecrets(t *testing.T, c *admin.Client) {
	t.Helper()
	secret := p.nodes[0].view.Load().state.Signing.Keys[0].Secret
	audit, err := c.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	spec, err := c.Spec(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	status, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dnssec, err := c.DNSSEC(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, r := range audit.Records {
		if strings.HasPrefix(r.Action, "dnssec") {
			actions = append(actions, strings.TrimPrefix(r.Action, "dnssec ")+" "+r.Reason)
		}
	}
	for _, want := range []string{"enable test of enable", "roll test of roll", "seen test of seen", "step its time had come in the phase rolling"} {
		if !strings.Contains(strings.Join(actions, "; "), want) {
			t.Errorf("the audit has %q, and not %q", actions, want)
		}
	}
	b, err := json.Marshal([]any{audit, spec, status, dnssec, p.gates["tokyo"].directive.Load()})
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{base64.StdEncoding.EncodeToString(secret)[:20], fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret)} {
		if strings.Contains(string(b), form) {
			t.Errorf("the key is shown as %s", form)
		}
	}
}

// TestNodeWithoutRaftSignsFromTheBackup holds that a node which restarts alone does not answer what validators would
// take for forged, and that the file that makes it possible is nobody else's to read.
func TestNodeWithoutRaftSignsFromTheBackup(t *testing.T) {
	p := &planet{t: t, dir: t.TempDir()}
	var err error
	if p.ca, err = identity.NewDevCA(p.dir, "test.example"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	b := newBackup(dir, telemetry.Logger(nil))
	err = b.write(&consensus.State{Index: 7, SpecVersion: 3, Spec: []byte(specText()), Signing: &consensus.Signing{
		Zone: "api.example.", Phase: consensus.PhaseSigned, Keys: []consensus.ZoneKey{{Secret: bytes.Repeat([]byte{9}, 32)}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "last-state.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the backup has the mode %v, %v", info.Mode(), err)
	}
	atlas, err := geo.NewLive(geo.Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{
		Name: "g1", Dir: dir, Certs: p.certs(identity.ID{Role: identity.RoleGlobal, Name: "g1"}), Atlas: atlas,
		RaftListen: "127.0.0.1:0", UplinkListen: "127.0.0.1:0", DNSListen: []string{"127.0.0.1:0"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.SetPeers([]consensus.Peer{{ID: "g1", Addr: s.RaftAddr().String()}, {ID: "g2", Addr: "127.0.0.1:1"}, {ID: "g3", Addr: "127.0.0.1:2"}})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer p.stop(s)
	eventually(t, 5*time.Second, "a node alone signs", func() bool { return isSigned(signedAnswer(s, service, typeA)) })
	if info, err := os.Stat(filepath.Join(dir, "snapshots")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder of snapshots has the mode %v, %v", info.Mode(), err)
	}
}

// TestViewsShareSignatures holds that what a View answers as an earlier one did is not signed anew.
func TestViewsShareSignatures(t *testing.T) {
	p := newPlanet(t)
	p.settle()
	s := p.leader()
	if _, err := p.admin(s).ChangeDNSSEC(t.Context(), admin.DNSSECRequest{Action: "enable"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "a signed answer", func() bool { return isSigned(signedAnswer(s, service, typeA)) })
	made, before := s.signatures.Made(), s.view.Load()
	begun := time.Now()
	for s.view.Load() == before || time.Since(begun) < 500*time.Millisecond {
		if b := signedAnswer(s, service, typeA); !isSigned(b) || binary.BigEndian.Uint16(b[6:]) != 2 {
			t.Fatalf("answered %x", b)
		}
	}
	if now := s.signatures.Made(); now != made {
		t.Errorf("%d signatures were made for what was signed", now-made)
	}
}
