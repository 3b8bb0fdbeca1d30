package strict_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

type testPage struct {
	Name  string             `yaml:"name"`
	Count int                `yaml:"count" default:"3"`
	Seed  uint64             `yaml:"seed"`
	Ratio float64            `yaml:"ratio"`
	On    *bool              `yaml:"on" default:"true"`
	Wait  time.Duration      `yaml:"wait" default:"1s"`
	Addr  netip.Addr         `yaml:"addr"`
	Tags  []string           `yaml:"tags"`
	Share map[string]float64 `yaml:"share"`
	Keys  []string           `yaml:"keys" secret:"true"`
	Part  testPart           `yaml:"part"`
	Parts []testPart         `yaml:"parts"`
}

type testPart struct {
	Name string `yaml:"name"`
	Size int    `yaml:"size" default:"7"`
}

func decodePage(text string) (*testPage, error) {
	doc, err := strict.Parse("page.yaml", []byte(text))
	if err != nil {
		return nil, err
	}
	var p testPage
	doc.Decode(&p)
	return &p, doc.Err()
}

func truePointer() *bool { b := true; return &b }

func TestDecodeReadsEveryKind(t *testing.T) {
	blank := testPage{Count: 3, On: truePointer(), Wait: time.Second, Part: testPart{Size: 7}}
	with := func(change func(*testPage)) testPage { p := blank; change(&p); return p }
	for _, c := range []struct {
		name, text string
		want       testPage
	}{
		{"defaults", "{}", blank},
		{"null leaves the default", "count:\nname: ~\ntags:\n", blank},
		{"scalars", "name: a b\ncount: -1\nseed: 18446744073709551615\nratio: 2\naddr: 2001:db8::1\nwait: 1m30s", with(func(p *testPage) {
			p.Name, p.Count, p.Seed, p.Ratio, p.Addr, p.Wait = "a b", -1, 1<<64-1, 2, netip.MustParseAddr("2001:db8::1"), 90*time.Second
		})},
		{"explicit false", "on: false", with(func(p *testPage) { p.On = new(bool) })},
		{"flow and block", "tags: [a, \"b\"]\nparts:\n  - name: x\n  - {name: y, size: 9}\n", with(func(p *testPage) {
			p.Tags, p.Parts = []string{"a", "b"}, []testPart{{"x", 7}, {"y", 9}}
		})},
		{"literal text", "name: |\n  two\n  lines\n", with(func(p *testPage) { p.Name = "two\nlines\n" })},
		{"map", "share: {us.east: 0.5, \"b c\": 1}", with(func(p *testPage) { p.Share = map[string]float64{"us.east": 0.5, "b c": 1} })},
		{"anchor and alias", "parts:\n  - &x {name: x}\n  - *x\n", with(func(p *testPage) { p.Parts = []testPart{{"x", 7}, {"x", 7}} })},
		{"windows lines", "name: a\r\ncount: 4\r\n", with(func(p *testPage) { p.Name, p.Count = "a", 4 })},
		{"document start", "---\nname: a\n", with(func(p *testPage) { p.Name = "a" })},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := decodePage(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, *got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Fatalf("read (-want +got):\n%s", diff)
			}
			again, err := decodePage(string(strict.Encode(got)))
			if err != nil {
				t.Fatalf("what was written cannot be read: %v\n%s", err, strict.Encode(got))
			}
			if diff := cmp.Diff(got, again, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Fatalf("read back (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncodeQuotesAmbiguousText(t *testing.T) {
	for _, name := range []string{
		"", "true", "null", "12", "0x1f", "1e5", "1_000", "0o7", ".5", "-", "a: b", "a #b", "#", "*a", "&a", "!a", "%a", "@a", "`a`",
		"a\nb", "\t", " a ", "é", "日本", "2001:db8::1", "12:30:45", "2024-01-01", "NaN", ".inf", "~", "yes", "<<", "=", "- a", "? a", "[a]", "{a}", "a,b",
		"\x00\x1f\x7f", "\u2028", "\U0001f600", `back\slash`, `"quoted"`, "'",
	} {
		p := testPage{Name: name, Tags: []string{name}, Share: map[string]float64{name + "x": 1}, Count: 1, Wait: 1, Part: testPart{Size: 1}}
		got, err := decodePage(string(strict.Encode(&p)))
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if got.Name != name || got.Tags[0] != name || got.Share[name+"x"] != 1 {
			t.Errorf("%q came back as %q, %q, %v", name, got.Name, got.Tags, got.Share)
		}
	}
}

// TestExpensiveTextsAreRefused: texts that would cost far more than their size.
func TestExpensiveTextsAreRefused(t *testing.T) {
	const mib = 1 << 20 // the maximum length of a text
	aliases := "tags: &a [x, x, x, x, x, x, x, x, x, x]\nparts: &b\n"
	for i := range 20_000 {
		aliases += fmt.Sprintf("  - {name: &n%d y}\n", i)
	}
	keys := strings.Repeat("k", mib/2) + ": 1\n"
	for name, text := range map[string]string{
		"too long":           strings.Repeat("a", mib+1),
		"flow lists":         strings.Repeat("[", mib),
		"flow maps":          strings.Repeat("{a: ", mib/4),
		"dashes":             strings.Repeat("- ", mib/8),
		"question marks":     strings.Repeat("? ", mib/8),
		"anchors":            strings.Repeat("&a ", mib/12),
		"tags":               strings.Repeat("!a ", mib/12),
		"indentation":        nestedYAML(1400),
		"long key":           keys,
		"many words":         "tags: [" + strings.Repeat("a,", mib/2-10) + "]",
		"billion laughs":     aliasBomb(),
		"many aliases":       aliases + "share: {a: 1}\nkeys: [" + strings.Repeat("*a, ", 100_000) + "]\n",
		"quotes":             strings.Repeat("\"", mib-1),
		"colons":             strings.Repeat("a: ", mib/3),
		"colons and newline": strings.Repeat(":\n", mib/8),
	} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			_, err := decodePage(text)
			if took := time.Since(begin); took > 10*time.Second {
				t.Errorf("took %v", took)
			}
			var e *strict.Error
			if !errors.As(err, &e) {
				t.Fatalf("error is %v, want an *Error", err)
			}
			if n := len(err.Error()); n > 100_000 {
				t.Errorf("the message has %d bytes", n)
			}
		})
	}
}

func nestedYAML(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return b.String()
}

func aliasBomb() string {
	text := "tags: &t0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]\n"
	for i := range 9 {
		one := fmt.Sprintf("*t%d", i)
		text += fmt.Sprintf("x%d: &t%d [%s]\n", i, i+1, strings.TrimSuffix(strings.Repeat(one+", ", 9), ", "))
	}
	return text + "parts: *t9\n"
}

func TestDependentProblemsAreOmitted(t *testing.T) {
	doc, err := strict.Parse("page.yaml", []byte("name: [a]\nparts:\n  - {name: [x], size: 1}\n  - {name: y, size: z}\ntags: [q]\n"))
	if err != nil {
		t.Fatal(err)
	}
	var p testPage
	doc.Decode(&p)
	doc.ReportProblems([]strict.Problem{
		{Path: "$.name", Reason: "echo of the name"},
		{Path: "$.tags[0]", Reason: "echo of a part's name", DependsOn: "$.parts[*].name"},
		{Path: "$.tags[0]", Reason: "rests on what was read", DependsOn: "$.share"},
		{Path: "$.parts[1].name", Reason: "beside a mistake"},
		{Path: "$.absent.below", Reason: "shown at its parent"},
	})
	text := doc.Err().Error()
	if strings.Contains(text, "echo") {
		t.Errorf("an echo is reported:\n%s", text)
	}
	for _, want := range []string{"page.yaml:5:8: rests on what was read", "page.yaml:4:12: beside a mistake", "page.yaml:1:1: shown at its parent"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in:\n%s", want, text)
		}
	}
}

func TestMistakesAreBounded(t *testing.T) {
	_, err := decodePage("tags: [" + strings.Repeat("1, ", 1000) + "]")
	var e *strict.Error
	if !errors.As(err, &e) || len(e.Mistakes) != strict.MaxMistakes || e.Omitted != 900 {
		t.Fatalf("error is %.200v", err)
	}
}

func TestExcerptIsCutAroundCaret(t *testing.T) {
	_, err := decodePage("{name: " + strings.Repeat("ab ", 300) + ", count: x, tags: [" + strings.Repeat("cd, ", 300) + "]}")
	if err == nil {
		t.Fatal("taken")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) < 3 || len(lines[1]) > 200 {
		t.Fatalf("printed:\n%v", err)
	}
	if caret := strings.IndexByte(lines[2], '^'); lines[1][caret] != 'x' {
		t.Fatalf("the caret points at %q:\n%v", lines[1][caret], err)
	}
}

func TestSecretsAreMasked(t *testing.T) {
	for _, text := range []string{
		"keys: [hunter2, 7]", "keys: hunter2\nkeys: x", "keys:\n  - hunter2\n  - {a: hunter2}", "keys: {a: hunter2}", "kys: hunter2",
		"keys: |\n  hunter2\n  hunter2\ncount: x", "keys:\n- hunter2\n- [hunter2]", "keys: [\n  a,\n  \"hunter2: x", "{keys: hunter2, count: x}",
		"password: hunter2", "parts:\n  - token: hunter2", "name: sk-hunter2hunter2\ncount: x\nnames: sk-hunter2hunter2", "sk-hunter2hunter2: 1",
		"keys:\n  - &k hunter2\ntags: [{x: *k}]\n", "keys:\n  - \"a\n    hunter2\n  count: x", "count: Bearer hunter2", "count: https://a:hunter2@b/",
		"keys: !!str hunter2", "keys: &a !!str hunter2", "keys: *hunter2", "? keys\n: hunter2", "keys\n: hunter2",
	} {
		_, err := decodePage(text)
		if err == nil {
			t.Errorf("%q was taken", text)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q is shown:\n%v", text, err)
		}
	}
}

// Width is not depth: any number of keys in brackets on a line or in a text is accepted, and real depth is
// refused.
func TestWideTextIsNotDeep(t *testing.T) {
	var weights, parts []string
	for i := range 300 {
		weights = append(weights, fmt.Sprintf("r%d: 1", i))
		parts = append(parts, fmt.Sprintf(`{"name":"p%d","size":%d}`, i, i))
	}
	for name, text := range map[string]string{
		"a flow map":           "share: {" + strings.Join(weights, ", ") + "}\n",
		"a flow list of maps":  "parts: [" + strings.Join(parts, ", ") + "]\n",
		"compact JSON":         `{"name":"a","parts":[` + strings.Join(parts, ",") + `],"share":{"a":1,"b":2}}`,
		"JSON over lines":      "{\n \"parts\": [\n" + strings.Join(parts, ",\n") + "\n]}",
		"flow after block":     "part:\n  name: x\nshare: {" + strings.Join(weights, ", ") + "}\ntags: [a]\n",
		"a list at its key":    "parts:\n- {name: a}\n- {name: b}\nname: c\n",
		"anchors of each item": "tags: [&a x, &b x, &c x, &d x, &e x, &f x, &g x, &h x, &i x, &j x, &k x, &l x, &m x, &n x, &o x, &p x, &q x, &r x]\n",
	} {
		if _, err := decodePage(text); err != nil && strings.Contains(err.Error(), "deep") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"flow lists":      "tags: " + strings.Repeat("[", 17) + strings.Repeat("]", 17),
		"flow maps":       "part: " + strings.Repeat("{a: ", 17) + strings.Repeat("}", 17),
		"block maps":      blockMaps(17),
		"block lists":     strings.Repeat("- ", 17) + "a",
		"block and flow":  blockMaps(9) + " " + strings.Repeat("[", 9) + strings.Repeat("]", 9),
		"lists at keys":   blockLists(9),
		"anchors":         strings.Repeat("&a ", 17) + "x",
		"anchors in flow": "[" + strings.Repeat("&a ", 17) + "x]",
		"tags over lines": "[" + strings.Repeat("!a\n", 17) + "x]",
	} {
		if _, err := decodePage(text); err == nil || !strings.Contains(err.Error(), "deep") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// blockMaps nests maps by indentation.
func blockMaps(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "\n%sa:", strings.Repeat(" ", i))
	}
	return b.String()
}

// blockLists nests lists that begin in the column of their key: two levels each.
func blockLists(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%sa:\n%s- b: 1\n", strings.Repeat(" ", 2*i), strings.Repeat(" ", 2*i))
	}
	return b.String()
}

// FuzzJSON: what is accepted as YAML is accepted as compact JSON, with the same result.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{"{}", "name: a\ntags: [a]\n", "share: {a: 1, b: 2}\n", "parts: [{name: a}, {name: b}]\n", "keys: [sk-aaaaaaaaaaaa]\nwait: 3s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := decodePage(text)
		if err != nil {
			return
		}
		compact, err := yaml.YAMLToJSON(strict.Encode(p))
		if err != nil {
			return
		}
		again, err := decodePage(string(compact))
		if err != nil {
			t.Fatalf("as JSON it is refused: %v\n%s", err, compact)
		}
		if diff := cmp.Diff(p, again, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("as JSON it differs (-want +got):\n%s", diff)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"{}", "name: a\ntags: [a]\n", "parts:\n  - &x {name: x}\n  - *x\n", "a: |\n  b\n", "? a\n: b", "- - -", "keys: sk-aaaaaaaaaaaa", "%YAML 1.2\n---\na: b", "\xef\xbb\xbfname: a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := decodePage(text)
		if err != nil {
			var e *strict.Error
			if !errors.As(err, &e) || len(e.Mistakes) == 0 {
				t.Fatalf("error is %v, want mistakes", err)
			}
			return
		}
		again, err := decodePage(string(strict.Encode(p)))
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, strict.Encode(p))
		}
		if diff := cmp.Diff(p, again, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("read back (-want +got):\n%s", diff)
		}
	})
}
