// Package strict decodes YAML written by people. Document parses a text and decodes it into a Go struct; it
// reports all mistakes at once, each with its position, the reason and a correction (Mistake, Error).
//
// It never reads a file, never stops at the first mistake, never guesses a value, and never shows the value of
// a key marked secret or text that looks like an API key. Aliases are followed within a budget; tags, merge
// keys and second documents are refused, so that a text has one obvious meaning.
//
// Struct tags: `yaml:"name"` names the key, `default:"20s"` is the value of an absent key, `secret:"true"`
// keeps the value out of every message. Supported are structs, pointers, lists, maps by name, text, numbers,
// booleans, durations, addresses and types that implement encoding.TextUnmarshaler; an UnmarshalText may return
// a *HintedError.
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

// textPos is a position in the text, line and column from 1.
type textPos struct{ line, column int }

func tokenPos(tk *token.Token) textPos {
	if tk == nil || tk.Position == nil {
		return textPos{1, 1}
	}
	return textPos{max(tk.Position.Line, 1), max(tk.Position.Column, 1)}
}

// Document is one text, its tree, and the mistakes found so far.
type Document struct {
	fileName      string
	lines         []string
	root          ast.Node
	valuePos      map[string]textPos
	keyPos        map[string]textPos
	secretColumns map[int]int // line to the first column that must not be shown
	mistakes      []Mistake
	omitted       int
}

// Parse parses the YAML of a text. Only what makes the whole text unreadable is an error here, always an
// *Error; name identifies the text in messages.
func Parse(name string, text []byte) (*Document, error) {
	d := &Document{fileName: name, valuePos: map[string]textPos{}, keyPos: map[string]textPos{}, secretColumns: map[int]int{}}
	if len(text) > MaxTextBytes {
		d.addMistake(textPos{1, 1}, "$", fmt.Sprintf("the text has %d bytes, more than the %d that are read", len(text), MaxTextBytes),
			"split it, or take out what repeats")
		return nil, d.Err()
	}
	if !utf8.Valid(text) {
		d.addMistake(textPos{1, 1}, "$", "the text is not UTF-8", "save it as UTF-8 without a byte order mark")
		return nil, d.Err()
	}
	d.lines = strings.Split(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n")
	root, at, reason, hint := parseTree(text)
	if reason != "" {
		if d.secretColumn(at.line) > 0 {
			reason = "the value of a secret key is not well-formed YAML"
		}
		d.addMistake(at, "$", reason, hint)
		return nil, d.Err()
	}
	d.root = root
	return d, nil
}

// Decode decodes the document into the struct that v points to: first defaults, then the text. Mistakes are
// collected for Err.
func (d *Document) Decode(v any) {
	w := treeDecoder{document: d, anchors: map[string]ast.Node{}}
	d.valuePos["$"] = textPos{1, 1}
	SetDefaults(v)
	w.decodeValue(d.root, reflect.ValueOf(v).Elem(), "$", false)
}

// TopLevelText returns the text value of a top-level key, and whether there is one.
func (d *Document) TopLevelText(key string) (string, bool) {
	for _, kv := range mapPairs(d.root) {
		if s, ok := kv.Value.(*ast.StringNode); ok && keyText(kv.Key) == key {
			d.valuePos["$."+key] = nodePos(s)
			return s.Value, true
		}
	}
	return "", false
}

// HasKey reports whether the text has a top-level key.
func (d *Document) HasKey(key string) bool {
	for _, kv := range mapPairs(d.root) {
		if keyText(kv.Key) == key {
			return true
		}
	}
	return false
}

// TopLevelKeys lists the top-level keys.
func (d *Document) TopLevelKeys() []string {
	var out []string
	for _, kv := range mapPairs(d.root) {
		out = append(out, keyText(kv.Key))
	}
	return out
}

// ReportProblems adds problems found by a validator, except those that only follow from an unreadable value.
func (d *Document) ReportProblems(problems []Problem) {
	unread := make([]string, len(d.mistakes))
	for i, m := range d.mistakes {
		if m.Path == "$" { // nothing could be decoded
			return
		}
		unread[i] = m.Path
	}
	for _, p := range problems {
		if !dependsOnUnread(p, unread) {
			d.addMistake(d.findPos(p), p.Path, p.Reason, p.Hint)
		}
	}
}

// dependsOnUnread reports whether a problem depends on a value that could not be decoded.
func dependsOnUnread(p Problem, unread []string) bool {
	for _, path := range unread {
		if isRelated(path, p.Path) || p.DependsOn != "" && isRelated(indexPattern.ReplaceAllString(path, "[*]"), p.DependsOn) {
			return true
		}
	}
	return false
}

// indexPattern matches the list positions in a path.
var indexPattern = regexp.MustCompile(`\[\d+\]`)

// isRelated reports whether one path equals or contains the other.
func isRelated(a, b string) bool { return isAtOrBelow(a, b) || isAtOrBelow(b, a) }

func isAtOrBelow(child, parent string) bool {
	rest, ok := strings.CutPrefix(child, parent)
	return ok && parent != "$" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// findPos returns the position of a problem: its own, or that of the nearest parent in the text.
func (d *Document) findPos(p Problem) textPos {
	if s, ok := d.keyPos[p.Path]; ok && p.CaretAtKey {
		return s
	}
	for path := p.Path; path != ""; path = parentPath(path) {
		if s, ok := d.valuePos[path]; ok {
			return s
		}
	}
	return textPos{1, 1}
}

func parentPath(path string) string {
	if i := strings.LastIndexAny(path, ".["); i > 0 {
		return path[:i]
	}
	return ""
}

func (d *Document) addMistake(s textPos, path, reason, hint string) {
	if len(d.mistakes) >= 2*MaxMistakes {
		d.omitted++
		return
	}
	m := Mistake{Path: path, Line: s.line, Column: s.column, Reason: maskText(reason), Hint: maskText(hint)}
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
	for i := range shown { // only now are all secrets of the line known
		shown[i].Excerpt, shown[i].caret = d.excerptAt(textPos{shown[i].Line, shown[i].Column})
	}
	return &Error{Name: d.fileName, Mistakes: shown, Omitted: len(all) - len(shown) + d.omitted}
}
