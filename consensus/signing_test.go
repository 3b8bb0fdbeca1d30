package consensus

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/testkit"
	"pgregory.net/rapid"
)

// resolverModel models what resolvers may have cached of a signed zone and of its parent: each answer, with the time
// from its first to its last use and how long it may be cached.
type resolverModel struct {
	state       *State
	index       uint64
	now         time.Time
	propagation time.Duration

	answers, keys, parents []cachedSpan
	parentDS               string // the key whose DS is in the parent; empty: none
}

// cachedSpan is one item that resolvers may cache, from its first answer to the expiry of the last one.
type cachedSpan struct {
	value     string // the key that signed, the keys of the set, or the key of the DS
	from, end time.Time
}

// testHoldTimes parses the specs of the tests below: "answers keys" in seconds.
func testHoldTimes(spec []byte) HoldTimes {
	var a, k int
	if _, err := fmt.Sscan(string(spec), &a, &k); err != nil {
		panic(err)
	}
	return HoldTimes{Zone: "api.example.", AnswerTTL: time.Duration(a) * time.Second, KeyTTL: time.Duration(k) * time.Second, ParentTTL: 500 * time.Second, Propagation: 30 * time.Second}
}

func (p *resolverModel) applyCommand(c command) resultCode {
	p.index++
	c.At = p.now
	data, err := encodeCommand(c)
	if err != nil {
		panic(err)
	}
	before := p.state
	next, r := applyEntry(p.state, logEntry{index: p.index, term: 1, data: data}, stateChecks{holdTimes: testHoldTimes})
	if r.Code == codeOK {
		p.recordAnswers(before) // nodes answer from the old state for as long as propagation may take
		p.state = next
		p.recordAnswers(next)
	}
	return r.Code
}

// recordAnswers records what nodes answer now, and may still answer until a change has propagated.
func (p *resolverModel) recordAnswers(s *State) {
	h := testHoldTimes(s.Spec)
	signer, set := "", ""
	if g := s.Signing; g != nil {
		signer = string(g.Keys[0].Secret)
		for _, k := range g.Keys {
			set += string(k.Secret)
		}
	}
	p.answers = extendCached(p.answers, signer, p.now, p.propagation+h.AnswerTTL)
	p.keys = extendCached(p.keys, set, p.now, p.propagation+h.KeyTTL)
	p.parents = extendCached(p.parents, p.parentDS, p.now, h.ParentTTL)
}

func extendCached(list []cachedSpan, what string, at time.Time, held time.Duration) []cachedSpan {
	if n := len(list); n > 0 && list[n-1].value == what {
		list[n-1].end = laterTime(list[n-1].end, at.Add(held))
		return list
	}
	return append(list, cachedSpan{what, at, at.Add(held)})
}

// checkChains checks that any DS, any DNSKEY set and any answer that a resolver may hold at the same time validate
// together. Each key is 32 equal bytes.
func (p *resolverModel) checkChains(t *rapid.T) {
	for _, d := range p.parents {
		for _, k := range p.keys {
			for _, a := range p.answers {
				from := laterTime(laterTime(d.from, k.from), a.from)
				if d.value == "" || !from.Before(d.end) || !from.Before(k.end) || !from.Before(a.end) {
					continue
				}
				if a.value == "" || !strings.Contains(k.value, d.value) || !strings.Contains(k.value, a.value) {
					t.Fatalf("at %s a resolver has the DS of %.1x, the keys %s and an answer signed by %.1x", from.Sub(noon), d.value, firstBytes(k.value), a.value)
				}
			}
		}
	}
}

func firstBytes(keys string) (out string) {
	for i := 0; i < len(keys); i += zoneKeySize {
		out += fmt.Sprintf("%x ", keys[i])
	}
	return out
}

// TestEveryCachedCombinationValidates runs signing, rolls, TTL changes and the end of signing in any order and at any
// time.
func TestEveryCachedCombinationValidates(t *testing.T) {
	reached := map[SigningPhase]int{}
	rapid.Check(t, func(t *rapid.T) {
		p := &resolverModel{state: &State{}, now: noon, propagation: 30 * time.Second}
		p.state, _ = applyEntry(p.state, logEntry{index: 1, term: 1, data: encodeForTest(command{Kind: kindPutSpec, Body: []byte("300 100"), At: noon})}, stateChecks{holdTimes: testHoldTimes})
		p.index = 1
		p.recordAnswers(p.state)
		next := byte(1)
		for range rapid.IntRange(5, 60).Draw(t, "events") {
			p.now = p.now.Add(time.Duration(rapid.SampledFrom([]int{1, 20, 100, 400, 1000}).Draw(t, "pass")) * time.Second)
			if g := p.state.Signing; g.IsStepDue(p.now) && rapid.IntRange(0, 3).Draw(t, "lazy") > 0 {
				if c := p.applyCommand(command{Kind: kindChangeSigning, Action: signStep, Path: g.Zone}); c != codeOK {
					t.Fatalf("the step out of %q: %s", g.Phase, c)
				}
			}
			c := command{Kind: kindChangeSigning, Path: "api.example."}
			switch rapid.SampledFrom([]string{"enable", "roll", "parent", "parent", "parent", "disable", "spec", "step"}).Draw(t, "do") {
			case "enable":
				c.Action, c.Body = SignEnable, bytes.Repeat([]byte{next}, zoneKeySize)
			case "roll":
				c.Action, c.Body = SignRoll, bytes.Repeat([]byte{next}, zoneKeySize)
			case "parent":
				p.publishDS()
				p.now = p.now.Add(time.Second)
				p.recordAnswers(p.state)
				c.Action = SignConfirmDS
			case "disable":
				if rapid.IntRange(0, 5).Draw(t, "really") > 0 {
					continue
				}
				c.Action = SignDisable
			case "spec":
				c = command{Kind: kindPutSpec, BasedOn: p.state.SpecVersion, Body: []byte(rapid.SampledFrom([]string{"300 100", "5 5", "2000 50", "60 900"}).Draw(t, "ttls"))}
			case "step":
				c.Action = signStep // must be refused unless it is due
				if g := p.state.Signing; g.IsStepDue(p.now) {
					continue
				} else if p.applyCommand(c) == codeOK {
					t.Fatalf("a step that was not due was taken")
				}
				continue
			}
			if p.applyCommand(c) == codeOK && c.Body != nil {
				next++
			}
			if g := p.state.Signing; g != nil {
				reached[g.Phase]++
			}
			checkRoundTrip(t, p.state)
		}
		p.now = p.now.Add(time.Hour)
		p.recordAnswers(p.state)
		p.checkChains(t)
	})
	for _, want := range []SigningPhase{PhaseNew, PhasePublish, PhaseSigned, PhaseRolling, PhaseReplace, PhaseRetiring, PhaseLeaving, PhaseUnsigning} {
		if reached[want] == 0 {
			t.Errorf("no run came to the phase %q", want)
		}
	}
}

// publishDS sets the parent to the wanted DS.
func (p *resolverModel) publishDS() {
	p.recordAnswers(p.state)
	p.parentDS = ""
	if g := p.state.Signing; g != nil {
		if k, ok := g.ParentKey(); ok {
			p.parentDS = string(k.Secret)
		}
	}
}

func encodeForTest(c command) []byte {
	b, err := encodeCommand(c)
	if err != nil {
		panic(err)
	}
	return b
}

// newSignedState returns a state with a zone in a phase, with one key in force.
func newSignedState(t *testing.T, phase SigningPhase) *State {
	t.Helper()
	s, _ := applyEntry(&State{}, logEntry{index: 1, term: 1, data: mustEncode(t, command{Kind: kindPutSpec, Body: []byte("300 100"), At: noon})}, stateChecks{holdTimes: testHoldTimes})
	s.Signing = &ZoneSigning{Zone: "api.example.", Phase: phase, PhaseSince: noon, Keys: []ZoneKey{{Secret: bytes.Repeat([]byte{1}, zoneKeySize), At: noon}}}
	return s
}

func TestSigningRefusals(t *testing.T) {
	key := bytes.Repeat([]byte{2}, zoneKeySize)
	for name, c := range map[string]struct {
		state *State
		cmd   command
		want  string
	}{
		"no spec":                {&State{}, command{Action: SignEnable, Body: key}, "no spec is in force"},
		"another zone":           {newSignedState(t, PhaseSigned), command{Action: SignRoll, Path: "other.", Body: key}, `not "other."`},
		"twice":                  {newSignedState(t, PhaseSigned), command{Action: SignEnable, Body: key}, "signed already"},
		"short key":              {newSignedState(t, PhaseSigned), command{Action: SignRoll, Body: key[1:]}, "not an ECDSA P-256 private key"},
		"key of zeros":           {newSignedState(t, PhaseSigned), command{Action: SignRoll, Body: make([]byte, zoneKeySize)}, "not an ECDSA P-256 private key"},
		"roll too early":         {newSignedState(t, PhasePublish), command{Action: SignRoll, Body: key}, `"publish"`},
		"seen of nothing":        {newSignedState(t, PhaseSigned), command{Action: SignConfirmDS}, "waits for no change of the parent zone"},
		"step without an author": {newSignedState(t, PhaseSigned), command{Action: signStep}, "not ended"},
		"unknown":                {newSignedState(t, PhaseSigned), command{Action: "sing"}, "upgrade"},
		"disable twice":          {newSignedState(t, PhaseLeaving), command{Action: SignDisable}, "in progress"},
		"disable of none":        {&State{SpecVersion: 1, Spec: []byte("5 5")}, command{Action: SignDisable}, "not signed"},
		"spec renames zone":      {newSignedState(t, PhaseSigned), command{Kind: kindPutSpec, BasedOn: 1, Body: []byte("rename")}, "cannot be renamed to other."},
	} {
		t.Run(name, func(t *testing.T) {
			if c.cmd.Kind == 0 {
				c.cmd.Kind = kindChangeSigning
			}
			if c.cmd.Path == "" {
				c.cmd.Path = "api.example."
			}
			c.cmd.At = noon.Add(time.Hour)
			rename := func(spec []byte) HoldTimes {
				if string(spec) == "rename" {
					return HoldTimes{Zone: "other."}
				}
				return testHoldTimes(spec)
			}
			_, r := applyEntry(c.state, logEntry{index: 9, term: 1, data: mustEncode(t, c.cmd)}, stateChecks{holdTimes: rename})
			if r.Code != codeRefused || !strings.Contains(r.Message, c.want) {
				t.Errorf("answered %q (%s), want a refusal with %q", r.Code, r.Message, c.want)
			}
		})
	}
}

// TestZoneKeysAreNotPrinted searches all printed forms for a secret.
func TestZoneKeysAreNotPrinted(t *testing.T) {
	secret := []byte("THIS-IS-A-SECRET-OF-32-BYTES-YES")
	s, r := applyEntry(newSignedState(t, PhaseSigned), logEntry{index: 9, term: 1, data: mustEncode(t, command{Kind: kindChangeSigning, Action: SignRoll, Path: "api.example.", Body: secret, Actor: "alice", At: noon})}, stateChecks{holdTimes: testHoldTimes})
	if r.Code != codeOK || len(s.Signing.Keys) != 2 {
		t.Fatalf("answered %+v", r)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", s.Signing.Keys[1], "keys", s.Signing.Keys, "signing", s.Signing)
	whole, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	printed := fmt.Sprintf("%v %+v %#v %v %s %s", s.Signing.Keys, *s.Signing, s.Signing.Keys[1], s.Audit, whole, log.String())
	for _, form := range []string{"THIS-IS", fmt.Sprint(secret)[1:30], fmt.Sprintf("%x", secret)[:16], "VEhJUy1JUy1BLVNF"} {
		if strings.Contains(printed, form) {
			t.Errorf("%q prints: %s", form, printed)
		}
	}
	if a := s.Audit[len(s.Audit)-1]; a.Action != "dnssec roll" || a.Subject != "api.example. is rolling" || a.Actor != "alice" {
		t.Errorf("the audit has %+v", a)
	}
}

// TestRestoredArchiveKeepsTheChainOfTrust restores an archive into a signed zone, and into a new cluster.
func TestRestoredArchiveKeepsTheChainOfTrust(t *testing.T) {
	old, now := newSignedState(t, PhaseSigned), newSignedState(t, PhaseReplace)
	now.Signing.Keys = append(slices.Clone(now.Signing.Keys), ZoneKey{Secret: bytes.Repeat([]byte{3}, zoneKeySize)})
	if got := old.mergeForRestore(now, "alice", noon).Signing; got.Phase != PhaseReplace || len(got.Keys) != 2 {
		t.Errorf("an archive replaces keys that are in force: %+v", got)
	}
	if got := old.mergeForRestore(&State{}, "alice", noon).Signing; got == nil || got.Phase != PhaseSigned {
		t.Errorf("a new cluster does not sign with the archived key: %+v", got)
	}
}

func TestSnapshotsWithBrokenKeysAreRefused(t *testing.T) {
	for name, change := range map[string]func(*ZoneSigning){
		"no keys":    func(g *ZoneSigning) { g.Keys = nil },
		"three keys": func(g *ZoneSigning) { g.Keys = slices.Repeat(g.Keys, 3) },
		"bad key":    func(g *ZoneSigning) { g.Keys[0].Secret = []byte("short") },
		"no zone":    func(g *ZoneSigning) { g.Zone = "" },
	} {
		s := newSignedState(t, PhaseSigned)
		change(s.Signing)
		b, err := encodeState(s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeState(bytes.NewReader(b)); err == nil {
			t.Errorf("%s: a snapshot with it is taken", name)
		}
	}
}

const goldenSigning = "log-signing-v1.txt"

// signingCommands pass through every phase, and cancel the end of signing once.
func signingCommands(t *testing.T) [][]byte {
	t.Helper()
	var out [][]byte
	at := noon
	add := func(action string, body []byte) {
		at = at.Add(time.Hour)
		out = append(out, mustEncode(t, command{Kind: kindChangeSigning, ID: fmt.Sprint(len(out)), Action: action, Path: "api.example.", Body: body, Actor: "alice", Reason: "golden", At: at}))
	}
	key := func(fill byte) []byte { return bytes.Repeat([]byte{fill}, zoneKeySize) }
	out = append(out, mustEncode(t, command{Kind: kindPutSpec, ID: "s", Body: []byte("300 100"), Actor: "alice", At: at}))
	add(SignEnable, key(1))
	add(signStep, nil)
	add(SignConfirmDS, nil)
	add(SignRoll, key(2))
	out = append(out, mustEncode(t, command{Kind: kindPutSpec, ID: "s2", BasedOn: 1, Body: []byte("600 60"), Actor: "alice", At: at}))
	add(signStep, nil)
	add(SignConfirmDS, nil)
	add(SignRoll, key(3)) // refused
	add(signStep, nil)
	add(SignDisable, nil)
	add(SignEnable, key(4))
	add(SignDisable, nil)
	add(SignConfirmDS, nil)
	add(signStep, nil)
	add(SignEnable, key(5))
	return out
}

// TestGoldenSigningLog replays a log of this release: later ones must reach the same states from it.
func TestGoldenSigningLog(t *testing.T) {
	path := filepath.Join("testdata", goldenSigning)
	var text strings.Builder
	s, phases := &State{}, ""
	for i, data := range signingCommands(t) {
		s, _ = applyEntry(s, logEntry{index: uint64(i + 1), term: 2, data: data}, stateChecks{holdTimes: testHoldTimes})
		fmt.Fprintf(&text, "%x %s\n", data, s.Hash())
		if s.Signing != nil {
			phases += string(s.Signing.Phase) + " "
		} else {
			phases += "- "
		}
	}
	if want := "- new publish signed rolling rolling replace retiring retiring signed leaving publish leaving unsigning - new "; phases != want {
		t.Errorf("the log leads through %s, want %s", phases, want)
	}
	if *updateGolden {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != text.String() {
		t.Errorf("%s now leads to other states: nodes of two releases would differ", path)
	}
}

// startSigningNode starts a single node whose specs have no TTLs to wait for.
func (s soloNode) startSigningNode(dir string) *Node {
	s.t.Helper()
	c := s.nodeConfig(dir)
	c.HoldTimes = func([]byte) HoldTimes { return HoldTimes{Zone: "api.example."} }
	n, err := New(c)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := n.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return n
}

// TestSigningOutlivesRestarts takes signing steps on a real node and restores them from its log, from a snapshot and
// from an archive.
func TestSigningOutlivesRestarts(t *testing.T) {
	t.Parallel()
	s, dir, ctx := newSoloNode(t), t.TempDir(), t.Context()
	n := s.startSigningNode(dir)
	sign := func(action string, fill byte) {
		t.Helper()
		var key []byte
		if fill > 0 {
			key = bytes.Repeat([]byte{fill}, zoneKeySize)
		}
		if err := n.ChangeSigning(ctx, action, "api.example.", key, Attribution{Actor: "alice", Reason: "test"}); err != nil {
			t.Fatalf("%s: %v", action, err)
		}
	}
	step := func(want SigningPhase) {
		t.Helper()
		if err := n.AdvanceSigning(ctx, time.Now().Add(time.Second)); err != nil || n.State().Signing == nil || n.State().Signing.Phase != want {
			t.Fatalf("%v, %+v; want %s", err, n.State().Signing, want)
		}
	}
	again := func() {
		t.Helper()
		want := n.State().Signing
		s.stopNode(n)
		n = s.startSigningNode(dir)
		testkit.Eventually(t, "the node leads and has the state of the signing again", func() bool { return n.IsLeader() && n.State().Signing != nil })
		if got := n.State().Signing; got.Phase != want.Phase || len(got.Keys) != len(want.Keys) || !bytes.Equal(got.Keys[0].Secret, want.Keys[0].Secret) || !got.StepDueAt.Equal(want.StepDueAt) {
			t.Fatalf("after a restart: %+v, want %+v", got, want)
		}
	}
	if _, err := n.PutSpec(ctx, 0, []byte("spec"), "alice"); err != nil {
		t.Fatal(err)
	}
	if err := n.ChangeSigning(ctx, SignEnable, "other.", bytes.Repeat([]byte{1}, zoneKeySize), Attribution{}); !errors.As(err, new(ErrRefused)) {
		t.Fatalf("another zone is signed: %v", err)
	}
	sign(SignEnable, 1)
	again()
	step(PhasePublish)
	sign(SignConfirmDS, 0)
	sign(SignRoll, 2)
	if err := n.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	again()
	step(PhaseReplace)
	archive, err := n.EncodeArchive()
	if err != nil {
		t.Fatal(err)
	}
	sign(SignConfirmDS, 0)
	step(PhaseSigned)
	if _, err := n.RestoreArchive(ctx, archive, Attribution{Actor: "alice"}); err != nil {
		t.Fatal(err)
	}
	if g := n.State().Signing; g.Phase != PhaseSigned || len(g.Keys) != 1 || g.Keys[0].Secret[0] != 2 {
		t.Errorf("an archive brings back keys that were rolled: %+v", g)
	}
	again()
	sign(SignDisable, 0)
	sign(SignConfirmDS, 0)
	if err := n.AdvanceSigning(ctx, time.Now().Add(time.Second)); err != nil || n.State().Signing != nil {
		t.Errorf("in the end: %+v, %v", n.State().Signing, err)
	}
	s.stopNode(n)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		info, _ := os.Stat(path)
		if path == filepath.Join(dir, snapshotDir) {
			if info.Mode().Perm() != 0o700 {
				t.Errorf("%s has the mode %v", path, info.Mode())
			}
			return fs.SkipDir // its content is private to the owner
		}
		if err == nil && !d.IsDir() && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s is open to others: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
