package strict

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// spot is a place in the text, line and column from 1.
type spot struct{ line, col int }

func at(tk *token.Token) spot {
	if tk == nil || tk.Position == nil {
		return spot{1, 1}
	}
	return spot{max(tk.Position.Line, 1), max(tk.Position.Column, 1)}
}

// Document is one text, its tree, and the mistakes found in it so far.
type Document struct {
	name     string
	lines    []string
	root     ast.Node
	values   map[string]spot
	keys     map[string]spot
	secrets  map[int]int // line to the first column that must not be shown
	mistakes []Mistake
	omitted  int
}

// Parse reads a text's YAML. Only what makes the text unreadable as a whole is an error here, always an *Error; name
// is how messages call the text.
func Parse(name string, text []byte) (*Document, error) {
	d := &Document{name: name, values: map[string]spot{}, keys: map[string]spot{}, secrets: map[int]int{}}
	if len(text) > MaxText {
		d.add(spot{1, 1}, "$", fmt.Sprintf("the text has %d bytes, more than the %d that are read", len(text), MaxText),
			"split it, or take out what repeats")
		return nil, d.Err()
	}
	if !utf8.Valid(text) {
		d.add(spot{1, 1}, "$", "the text is not UTF-8", "save it as UTF-8 without a byte order mark")
		return nil, d.Err()
	}
	d.lines = strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
	root, at, reason, hint := parse(text)
	if reason != "" {
		if d.secret(at.line) > 0 {
			reason = "the value of a secret key is not well-formed YAML"
		}
		d.add(at, "$", reason, hint)
		return nil, d.Err()
	}
	d.root = root
	return d, nil
}

// Decode reads the document into the struct that v points to: defaults first, then what the text says. Mistakes are
// collected; Err tells whether there were any.
func (d *Document) Decode(v any) {
	w := walker{doc: d, anchors: map[string]ast.Node{}}
	d.values["$"] = spot{1, 1}
	SetDefaults(v)
	w.value(d.root, reflect.ValueOf(v).Elem(), "$", false)
}

// Text returns the text that stands under a top-level key, and whether there is one.
func (d *Document) Text(key string) (string, bool) {
	for _, kv := range pairs(d.root) {
		if s, ok := kv.Value.(*ast.StringNode); ok && keyText(kv.Key) == key {
			d.values["$."+key] = start(s)
			return s.Value, true
		}
	}
	return "", false
}

// Has reports whether the text has a key at its top.
func (d *Document) Has(key string) bool {
	for _, kv := range pairs(d.root) {
		if keyText(kv.Key) == key {
			return true
		}
	}
	return false
}

// Keys lists the top-level keys.
func (d *Document) Keys() []string {
	var out []string
	for _, kv := range pairs(d.root) {
		out = append(out, keyText(kv.Key))
	}
	return out
}

// Report adds a judge's problems, except those that only echo what could not be read.
func (d *Document) Report(problems []Problem) {
	unread := make([]string, len(d.mistakes))
	for i, m := range d.mistakes {
		if m.Path == "$" { // nothing could be read
			return
		}
		unread[i] = m.Path
	}
	for _, p := range problems {
		if !echoes(p, unread) {
			d.add(d.place(p), p.Path, p.Reason, p.Hint)
		}
	}
}

// echoes reports whether a problem rests on a value that could not be read.
func echoes(p Problem, unread []string) bool {
	for _, path := range unread {
		if related(path, p.Path) || p.Needs != "" && related(anyIndex.ReplaceAllString(path, "[*]"), p.Needs) {
			return true
		}
	}
	return false
}

// anyIndex finds the list positions in a path.
var anyIndex = regexp.MustCompile(`\[\d+\]`)

// related reports whether one path is the other or lies below it.
func related(a, b string) bool { return below(a, b) || below(b, a) }

func below(child, parent string) bool {
	rest, ok := strings.CutPrefix(child, parent)
	return ok && parent != "$" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// place finds a problem's spot: its own, or that of the nearest parent that the text has.
func (d *Document) place(p Problem) spot {
	if s, ok := d.keys[p.Path]; ok && p.AtKey {
		return s
	}
	for path := p.Path; path != ""; path = parentPath(path) {
		if s, ok := d.values[path]; ok {
			return s
		}
	}
	return spot{1, 1}
}

func parentPath(path string) string {
	if i := strings.LastIndexAny(path, ".["); i > 0 {
		return path[:i]
	}
	return ""
}

func (d *Document) add(s spot, path, reason, hint string) {
	if len(d.mistakes) >= 2*MaxMistakes {
		d.omitted++
		return
	}
	m := Mistake{Path: path, Line: s.line, Column: s.col, Reason: maskText(reason), Hint: maskText(hint)}
	d.mistakes = append(d.mistakes, m)
}

// Err returns every mistake found so far as an *Error, by line, or nil.
func (d *Document) Err() error {
	if len(d.mistakes) == 0 {
		return nil
	}
	all := slices.Clone(d.mistakes)
	slices.SortStableFunc(all, func(a, b Mistake) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column)
	})
	all = slices.CompactFunc(all, func(a, b Mistake) bool { return a == b })
	shown := all[:min(len(all), MaxMistakes)]
	for i := range shown { // only now is every secret on the line known
		shown[i].Excerpt, shown[i].caret = d.excerpt(spot{shown[i].Line, shown[i].Column})
	}
	return &Error{Name: d.name, Mistakes: shown, Omitted: len(all) - len(shown) + d.omitted}
}
