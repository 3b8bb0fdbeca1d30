package strict_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// checkPlainEqualsParsed fails if DecodePlain decodes a text that Document.Decode refuses or decodes differently. It
// reports whether DecodePlain decoded it.
func checkPlainEqualsParsed(t interface{ Fatalf(string, ...any) }, text string) bool {
	var got testPage
	if !strict.DecodePlain([]byte(text), &got) {
		return false
	}
	want, err := decodePage(text)
	if err != nil {
		t.Fatalf("plain decoding accepts what parsing refuses: %v\n%q", err, text)
	}
	if diff := cmp.Diff(*want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Fatalf("plain decoding differs from parsing (-parsed +plain):\n%s\n%q", diff, text)
	}
	return true
}

func TestPlainTextsDecodeAsParsed(t *testing.T) {
	for _, text := range []string{
		"name: a\n", "name: a", "name: New York # a comment\ncount: -1", "# first\n\nname: \"a b\"\n  # indented\ncount: 4\n",
		"tags: [a, b]\n", "tags: []\n", "tags:\n- a\n- 'b c'\nname: x\n", "tags:\n  - a\n  - \"q\\\"\\\\\\n\"\n",
		"share: {}\n", "share: {a: 1, \"b:c\": 0.5}\n", "share:\n  a: -1.5\n  \"b c\": 2\n",
		"part: {name: a, size: 9}\nparts: [{name: x}, {size: 2}]\n", "parts:\n- name: x\n  size: 3\n- {name: z}\n- size: 4\n",
		"part:\n    name: a\n    size: 1\nwait: 250ms\n", "on: false\nwait: 1h30m\naddr: 192.0.2.1\nseed: 7\nratio: 0.25\n",
		"name: http://127.0.0.1:8080/x\nkeys: [\"sha256:00\"]\n", "name: \"é 日本\" # ü\n", "name: 192.0.2.1\n", "name: 20s\n", "name: a-b_c/d.e@f+g\n",
	} {
		if !checkPlainEqualsParsed(t, text) {
			t.Errorf("not decoded as plain YAML: %q", text)
		}
	}
}

// TestUnusualTextsAreParsed: what is a mistake, or not plain, is left to the parser, which gives positions.
func TestUnusualTextsAreParsed(t *testing.T) {
	for _, text := range []string{
		"", "{}", "---\nname: a\n", "name: a\nname: b\n", "nmae: a\n", "name: 12\n", "name: true\n", "name: null\n", "name:\n", "count: 0\n", "count: 012\n",
		"count: 1e5\n", "count: \"1\"\n", "on: yes\n", "wait: 5\n", "wait: 0\n", "addr: x\n", "name: a: b\n", "name: a\n  b\n", "name: &x a\n", "name: *x\n",
		"name: !!str a\n", "name: |\n  a\n", "name: \"\\u00e9\"\n", "name: 'it''s'\n", "tags: [a,\n b]\n", "tags:\n  -\n", "tags:\n- - a\n", "parts:\n- x\n",
		"share: {a: 1, a: 2}\n", "part: {size: 0}\n", "\tname: a\n", "name: a\r\n", " name: a\n", "name: a\n count: 1\n", "part:\n  name: a\n size: 1\n",
		"name: \"a\nb\"\n", "name: \"a\n", "tags: [a\n", "tags: [a,]\n", "name: a#b\n", "name: \"a\"#b\n", "name: \u2028\n", "name: a,b\n",
		strings.Repeat("#[\n", 100) + "name: a\n", "name: " + strings.Repeat(" ", 3<<20), "count: 99999999999999999999\n", "part: x\n", "share: [1]\n", "tags: {a: b}\n",
	} {
		if checkPlainEqualsParsed(t, text) {
			t.Errorf("decoded as plain YAML: %q", text)
		}
	}
}

// TestPlainDefaultsAreNotShared: a change of one decoded value does not reach the default of another.
func TestPlainDefaultsAreNotShared(t *testing.T) {
	var one, two testPage
	if !strict.DecodePlain([]byte("name: a\n"), &one) {
		t.Fatal("not decoded")
	}
	*one.On = false
	if !strict.DecodePlain([]byte("name: a\n"), &two) || !*two.On {
		t.Error("the default of one value is that of another")
	}
}

// TestTooManyWordsAreNotPlain: plain decoding counts at least the words that parsing counts.
func TestTooManyWordsAreNotPlain(t *testing.T) {
	for _, n := range []int{199_000, 201_000} {
		var p testPage
		text := "tags: [" + strings.Repeat("a, b, c, ", n/2) + "d]\n"
		_, err := strict.Parse("page.yaml", []byte(text))
		if plain := strict.DecodePlain([]byte(text), &p); plain && err != nil {
			t.Errorf("%d words are decoded, and refused by the parser: %v", n, err)
		}
	}
}

// drawPage draws texts in the styles of people and of Encode.
func drawPage(t *rapid.T) string {
	scalar := rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9_./:@+ -]{0,8}`), rapid.StringMatching(`"[A-Za-z0-9 :#,{}\[\]é'-]{0,6}"`), rapid.StringMatching(`-?[0-9]{1,3}(\.[0-9]{1,2})?`),
		rapid.SampledFrom([]string{"true", "20s", "a b", "1.2.3.4", "''", "~", "x # y", "{}", "[]", "[a, b]", "{a: 1}", "{name: x, size: 2}", "[{name: y}]"}))
	valid := rapid.SampledFrom([]string{"name: a b", "name: \"x\" # c", "count: 3", "seed: 7", "ratio: 0.5", "on: false", "wait: 20s", "addr: 1.2.3.4", "tags: [a, b]", "share: {a: 1}", "part: {name: x, size: 2}", "parts: [{name: y}]"})
	key := rapid.SampledFrom([]string{"name", "count", "seed", "ratio", "on", "wait", "addr", "tags", "share", "keys", "part", "parts"})
	var b strings.Builder
	for i := range rapid.IntRange(1, 5).Draw(t, "lines") {
		switch rapid.IntRange(0, 7).Draw(t, "form") {
		case 0:
			fmt.Fprintf(&b, "tags:\n%s- %s\n%s- %s\n", strings.Repeat(" ", rapid.IntRange(0, 2).Draw(t, "in")), scalar.Draw(t, "a"), strings.Repeat(" ", rapid.IntRange(0, 2).Draw(t, "in")), scalar.Draw(t, "b"))
		case 1:
			fmt.Fprintf(&b, "parts:\n  - name: %s\n    size: %s\n # c\n  - {name: %s}\n", scalar.Draw(t, "a"), scalar.Draw(t, "b"), scalar.Draw(t, "c"))
		case 2:
			fmt.Fprintf(&b, "%s:\n  k%d: %s\n", rapid.SampledFrom([]string{"share", "part"}).Draw(t, "map"), i, scalar.Draw(t, "a"))
		case 3, 4, 5:
			b.WriteString(valid.Draw(t, "valid") + "\n")
		default:
			fmt.Fprintf(&b, "%s: %s%s\n", key.Draw(t, "key"), scalar.Draw(t, "a"), rapid.SampledFrom([]string{"", " ", " # c", "#"}).Draw(t, "end"))
		}
	}
	return b.String()
}

// TestDrawnPagesDecodeAsParsed compares both decoders for texts of chance.
func TestDrawnPagesDecodeAsParsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkPlainEqualsParsed(t, drawPage(t)) })
}

// TestDrawnPagesAreOftenPlain: the texts of drawPage exercise plain decoding. The seeds are fixed, because a bound on
// the share of plain texts fails for a few seeds.
func TestDrawnPagesAreOftenPlain(t *testing.T) {
	pages, plain := rapid.Custom(drawPage), 0
	for seed := range 1000 {
		if checkPlainEqualsParsed(t, pages.Example(seed)) {
			plain++
		}
	}
	t.Logf("%d of 1000 texts are plain", plain)
	if plain < 100 {
		t.Errorf("%d of 1000 texts are plain, want 100", plain)
	}
}

// TestEncodedPagesArePlain: plain decoding decodes what Encode writes, unless it has unusual characters.
func TestEncodedPagesArePlain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[A-Za-z0-9 _./:@+#,{}\[\]"\\é'-]{0,12}`)
		var on *bool
		if rapid.Bool().Draw(t, "given") {
			on = truePointer()
		}
		p := testPage{
			Name: word.Draw(t, "name"), Count: rapid.IntRange(1, 1<<40).Draw(t, "count"), Seed: rapid.Uint64Max(1<<50).Draw(t, "seed"), On: on, Wait: 1,
			Tags: rapid.SliceOfN(word, 1, 3).Draw(t, "tags"), Share: rapid.MapOfN(rapid.StringMatching(`[A-Za-z0-9 :/]{1,9}`), rapid.Float64Range(0.001, 1000), 1, 3).Draw(t, "share"),
			Part: testPart{Size: 1}, Parts: []testPart{{word.Draw(t, "part"), 2}, {"", 3}},
		}
		text := strict.Encode(&p)
		if !checkPlainEqualsParsed(t, string(text)) {
			t.Fatalf("not decoded as plain YAML:\n%s", text)
		}
		if !reflect.DeepEqual(text, strict.Encode(p)) {
			t.Fatal("a struct and a pointer to it are written differently")
		}
	})
}

// FuzzDecodePlain: what plain decoding accepts is what parsing decodes.
func FuzzDecodePlain(f *testing.F) {
	for _, s := range []string{
		"name: a\ntags: [a]\n", "share: {a: 1, b: 2.5}\n", "parts:\n- name: a\n  size: 2\n- {name: b}\n", "on: true # c\nwait: 3s\n", "part:\n  name: \"a\\n\"\n", "addr: 1.2.3.4\n",
		"name: a b:c\n# c\nkeys: ['x', y]\n", "name: x\n\n  # c\ncount: -1\n", "tags:\n  - a\n - b\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) { checkPlainEqualsParsed(t, text) })
}
