package consensus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// planet is what resolvers may have seen of a signed zone and of its parent: each thing that was answered, with the
// time from the first to the last answer and how long that may be held.
type planet struct {
	state  *State
	index  uint64
	now    time.Time
	spread time.Duration

	answers, keys, parents []sight
	parent                 string // whose DS the parent has; empty: none
}

// sight is one thing that resolvers may hold from its first answer to the last one's end.
type sight struct {
	what      string // the key that signed, the keys of the set, or the key of the DS
	from, end time.Time
}

// holdsOf reads specs as the tests below write them: "answers keys" in seconds.
func holdsOf(spec []byte) Holds {
	var a, k int
	if _, err := fmt.Sscan(string(spec), &a, &k); err != nil {
		panic(err)
	}
	return Holds{Zone: "api.example.", Answers: time.Duration(a) * time.Second, Keys: time.Duration(k) * time.Second, Parent: 500 * time.Second, Spread: 30 * time.Second}
}

func (p *planet) apply(c command) code {
	p.index++
	c.At = p.now
	data, err := encodeCommand(c)
	if err != nil {
		panic(err)
	}
	before := p.state
	next, r := apply(p.state, entry{index: p.index, term: 1, data: data}, checks{holds: holdsOf})
	if r.Code == codeOK {
		p.see(before) // nodes answer by the old state for as long as the news may take to spread
		p.state = next
		p.see(next)
	}
	return r.Code
}

// see notes what nodes answer now, and may answer until the news of something else has spread.
func (p *planet) see(s *State) {
	h := holdsOf(s.Spec)
	signer, set := "", ""
	if g := s.Signing; g != nil {
		signer = string(g.Keys[0].Secret)
		for _, k := range g.Keys {
			set += string(k.Secret)
		}
	}
	p.answers = look(p.answers, signer, p.now, p.spread+h.Answers)
	p.keys = look(p.keys, set, p.now, p.spread+h.Keys)
	p.parents = look(p.parents, p.parent, p.now, h.Parent)
}

func look(list []sight, what string, at time.Time, held time.Duration) []sight {
	if n := len(list); n > 0 && list[n-1].what == what {
		list[n-1].end = later(list[n-1].end, at.Add(held))
		return list
	}
	return append(list, sight{what, at, at.Add(held)})
}

// check holds that whoever has any DS, any set of keys and any answer at one time finds them to fit. Each key is 32
// equal bytes.
func (p *planet) check(t *rapid.T) {
	for _, d := range p.parents {
		for _, k := range p.keys {
			for _, a := range p.answers {
				from := later(later(d.from, k.from), a.from)
				if d.what == "" || !from.Before(d.end) || !from.Before(k.end) || !from.Before(a.end) {
					continue
				}
				if a.what == "" || !strings.Contains(k.what, d.what) || !strings.Contains(k.what, a.what) {
					t.Fatalf("at %s a resolver has the DS of %.1x, the keys %s and an answer signed by %.1x", from.Sub(noon), d.what, firsts(k.what), a.what)
				}
			}
		}
	}
}

func firsts(keys string) (out string) {
	for i := 0; i < len(keys); i += zoneKeySize {
		out += fmt.Sprintf("%x ", keys[i])
	}
	return out
}

// TestNoResolverIsEverLeftWithoutAChain drives signing, rolls, changes of TTLs and leaving in any order and at any time.
func TestNoResolverIsEverLeftWithoutAChain(t *testing.T) {
	reached := map[Phase]int{}
	rapid.Check(t, func(t *rapid.T) {
		p := &planet{state: &State{}, now: noon, spread: 30 * time.Second}
		p.state, _ = apply(p.state, entry{index: 1, term: 1, data: encoded(command{Kind: kindPutSpec, Body: []byte("300 100"), At: noon})}, checks{holds: holdsOf})
		p.index = 1
		p.see(p.state)
		next := byte(1)
		for range rapid.IntRange(5, 60).Draw(t, "events") {
			p.now = p.now.Add(time.Duration(rapid.SampledFrom([]int{1, 20, 100, 400, 1000}).Draw(t, "pass")) * time.Second)
			if g := p.state.Signing; g.Ready(p.now) && rapid.IntRange(0, 3).Draw(t, "lazy") > 0 {
				if c := p.apply(command{Kind: kindSign, Action: signStep, Path: g.Zone}); c != codeOK {
					t.Fatalf("the step out of %q: %s", g.Phase, c)
				}
			}
			c := command{Kind: kindSign, Path: "api.example."}
			switch rapid.SampledFrom([]string{"enable", "roll", "parent", "parent", "parent", "disable", "spec", "step"}).Draw(t, "do") {
			case "enable":
				c.Action, c.Body = SignEnable, bytes.Repeat([]byte{next}, zoneKeySize)
			case "roll":
				c.Action, c.Body = SignRoll, bytes.Repeat([]byte{next}, zoneKeySize)
			case "parent":
				p.delegate()
				p.now = p.now.Add(time.Second)
				p.see(p.state)
				c.Action = SignSeen
			case "disable":
				if rapid.IntRange(0, 5).Draw(t, "really") > 0 {
					continue
				}
				c.Action = SignDisable
			case "spec":
				c = command{Kind: kindPutSpec, BasedOn: p.state.SpecVersion, Body: []byte(rapid.SampledFrom([]string{"300 100", "5 5", "2000 50", "60 900"}).Draw(t, "ttls"))}
			case "step":
				c.Action = signStep // it must be refused unless it is due
				if g := p.state.Signing; g.Ready(p.now) {
					continue
				} else if p.apply(c) == codeOK {
					t.Fatalf("a step that was not due was taken")
				}
				continue
			}
			if p.apply(c) == codeOK && c.Body != nil {
				next++
			}
			if g := p.state.Signing; g != nil {
				reached[g.Phase]++
			}
			roundTrip(t, p.state)
		}
		p.now = p.now.Add(time.Hour)
		p.see(p.state)
		p.check(t)
	})
	for _, want := range []Phase{PhaseNew, PhasePublish, PhaseSigned, PhaseRolling, PhaseReplace, PhaseRetiring, PhaseLeaving, PhaseUnsigning} {
		if reached[want] == 0 {
			t.Errorf("no run came to the phase %q", want)
		}
	}
}

// delegate has the parent show what it is to have.
func (p *planet) delegate() {
	p.see(p.state)
	p.parent = ""
	if g := p.state.Signing; g != nil {
		if k, ok := g.Parent(); ok {
			p.parent = string(k.Secret)
		}
	}
}

func encoded(c command) []byte {
	b, err := encodeCommand(c)
	if err != nil {
		panic(err)
	}
	return b
}

// signed is a state with a zone in a phase, one key in force.
func signed(t *testing.T, phase Phase) *State {
	t.Helper()
	s, _ := apply(&State{}, entry{index: 1, term: 1, data: must(t, command{Kind: kindPutSpec, Body: []byte("300 100"), At: noon})}, checks{holds: holdsOf})
	s.Signing = &Signing{Zone: "api.example.", Phase: phase, Since: noon, Keys: []ZoneKey{{Secret: bytes.Repeat([]byte{1}, zoneKeySize), At: noon}}}
	return s
}

func TestSigningRefusals(t *testing.T) {
	key := bytes.Repeat([]byte{2}, zoneKeySize)
	for name, c := range map[string]struct {
		state *State
		cmd   command
		want  string
	}{
		"no spec":           {&State{}, command{Action: SignEnable, Body: key}, "no spec is in force"},
		"another zone":      {signed(t, PhaseSigned), command{Action: SignRoll, Path: "other.", Body: key}, `not "other."`},
		"twice":             {signed(t, PhaseSigned), command{Action: SignEnable, Body: key}, "signed already"},
		"short key":         {signed(t, PhaseSigned), command{Action: SignRoll, Body: key[1:]}, "no private key"},
		"key of zeros":      {signed(t, PhaseSigned), command{Action: SignRoll, Body: make([]byte, zoneKeySize)}, "no private key"},
		"roll too early":    {signed(t, PhasePublish), command{Action: SignRoll, Body: key}, `"publish"`},
		"seen of nothing":   {signed(t, PhaseSigned), command{Action: SignSeen}, "nothing is awaited"},
		"step of nobody":    {signed(t, PhaseSigned), command{Action: signStep}, "not over"},
		"unknown":           {signed(t, PhaseSigned), command{Action: "sing"}, "upgrade"},
		"disable twice":     {signed(t, PhaseLeaving), command{Action: SignDisable}, "under way"},
		"disable of none":   {&State{SpecVersion: 1, Spec: []byte("5 5")}, command{Action: SignDisable}, "not signed"},
		"spec renames zone": {signed(t, PhaseSigned), command{Kind: kindPutSpec, BasedOn: 1, Body: []byte("rename")}, "cannot become other."},
	} {
		t.Run(name, func(t *testing.T) {
			if c.cmd.Kind == 0 {
				c.cmd.Kind = kindSign
			}
			if c.cmd.Path == "" {
				c.cmd.Path = "api.example."
			}
			c.cmd.At = noon.Add(time.Hour)
			rename := func(spec []byte) Holds {
				if string(spec) == "rename" {
					return Holds{Zone: "other."}
				}
				return holdsOf(spec)
			}
			_, r := apply(c.state, entry{index: 9, term: 1, data: must(t, c.cmd)}, checks{holds: rename})
			if r.Code != codeRefused || !strings.Contains(r.Message, c.want) {
				t.Errorf("answered %q (%s), want a refusal with %q", r.Code, r.Message, c.want)
			}
		})
	}
}

// TestZoneKeysAreNotTold looks for a secret wherever one might slip out.
func TestZoneKeysAreNotTold(t *testing.T) {
	secret := []byte("THIS-IS-A-SECRET-OF-32-BYTES-YES")
	s, r := apply(signed(t, PhaseSigned), entry{index: 9, term: 1, data: must(t, command{Kind: kindSign, Action: SignRoll, Path: "api.example.", Body: secret, Actor: "alice", At: noon})}, checks{holds: holdsOf})
	if r.Code != codeOK || len(s.Signing.Keys) != 2 {
		t.Fatalf("answered %+v", r)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "key", s.Signing.Keys[1], "keys", s.Signing.Keys, "signing", s.Signing)
	whole, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	told := fmt.Sprintf("%v %+v %#v %v %s %s", s.Signing.Keys, *s.Signing, s.Signing.Keys[1], s.Audit, whole, log.String())
	for _, form := range []string{"THIS-IS", fmt.Sprint(secret)[1:30], fmt.Sprintf("%x", secret)[:16], "VEhJUy1JUy1BLVNF"} {
		if strings.Contains(told, form) {
			t.Errorf("%q is told: %s", form, told)
		}
	}
	if a := s.Audit[len(s.Audit)-1]; a.Action != "dnssec roll" || a.Subject != "api.example. is rolling" || a.Actor != "alice" {
		t.Errorf("the audit has %+v", a)
	}
}

// TestArchivesKeepTheChain restores an archive into a zone that is signed, and into a cluster that knows nothing.
func TestArchivesKeepTheChain(t *testing.T) {
	old, now := signed(t, PhaseSigned), signed(t, PhaseReplace)
	now.Signing.Keys = append(slices.Clone(now.Signing.Keys), ZoneKey{Secret: bytes.Repeat([]byte{3}, zoneKeySize)})
	if got := old.raised(now, "alice", noon).Signing; got.Phase != PhaseReplace || len(got.Keys) != 2 {
		t.Errorf("an archive replaces keys that are in force: %+v", got)
	}
	if got := old.raised(&State{}, "alice", noon).Signing; got == nil || got.Phase != PhaseSigned {
		t.Errorf("a new cluster does not sign with the archived key: %+v", got)
	}
}

func TestSnapshotsWithBrokenKeysAreRefused(t *testing.T) {
	for name, change := range map[string]func(*Signing){
		"no keys":    func(g *Signing) { g.Keys = nil },
		"three keys": func(g *Signing) { g.Keys = slices.Repeat(g.Keys, 3) },
		"bad key":    func(g *Signing) { g.Keys[0].Secret = []byte("short") },
		"no zone":    func(g *Signing) { g.Zone = "" },
	} {
		s := signed(t, PhaseSigned)
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

// signingCommands lead through every phase, and go back on leaving.
func signingCommands(t *testing.T) [][]byte {
	t.Helper()
	var out [][]byte
	at := noon
	add := func(action string, body []byte) {
		at = at.Add(time.Hour)
		out = append(out, must(t, command{Kind: kindSign, ID: fmt.Sprint(len(out)), Action: action, Path: "api.example.", Body: body, Actor: "alice", Reason: "golden", At: at}))
	}
	key := func(fill byte) []byte { return bytes.Repeat([]byte{fill}, zoneKeySize) }
	out = append(out, must(t, command{Kind: kindPutSpec, ID: "s", Body: []byte("300 100"), Actor: "alice", At: at}))
	add(SignEnable, key(1))
	add(signStep, nil)
	add(SignSeen, nil)
	add(SignRoll, key(2))
	out = append(out, must(t, command{Kind: kindPutSpec, ID: "s2", BasedOn: 1, Body: []byte("600 60"), Actor: "alice", At: at}))
	add(signStep, nil)
	add(SignSeen, nil)
	add(SignRoll, key(3)) // refused
	add(signStep, nil)
	add(SignDisable, nil)
	add(SignEnable, key(4))
	add(SignDisable, nil)
	add(SignSeen, nil)
	add(signStep, nil)
	add(SignEnable, key(5))
	return out
}

// TestGoldenSigningLog replays a log of this release: later ones must come to the same states by it.
func TestGoldenSigningLog(t *testing.T) {
	path := filepath.Join("testdata", goldenSigning)
	var text strings.Builder
	s, phases := &State{}, ""
	for i, data := range signingCommands(t) {
		s, _ = apply(s, entry{index: uint64(i + 1), term: 2, data: data}, checks{holds: holdsOf})
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
	if *update {
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
