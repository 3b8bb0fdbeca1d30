package strict

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

const maskString = "********"

// secretPattern matches anything that looks like an API key, a hash, a token or key material.
var secretPattern = regexp.MustCompile(`(?i)\b(sk-|rk-|gh[a-z]_|hf_|xox[a-z]-|spw-|akia|api[-_]?key[-_])[a-z0-9_\-]{8,}` +
	`|sha256:[0-9a-z]\S*|bearer\s+\S+|\beyJ[a-z0-9_\-.]{10,}|\b[a-f0-9]{32,}\b|\b[a-z0-9]{40,}|-----begin.*|//[^/\s@"']+@`)

// secretKeyPattern matches a key whose name marks its value as secret, for text that could not be parsed as a
// tree.
var secretKeyPattern = regexp.MustCompile(`(?i)(^|[\s{,"'-])(keys|api_?-?keys?|tokens?|secrets?|passwords?|authorization)["']?\s*:`)

// keyLinePattern matches a line that begins with a key.
var keyLinePattern = regexp.MustCompile(`^\s*(-\s+)*[A-Za-z_][\w.-]*\s*:(\s|$)`)

func maskText(s string) string { return secretPattern.ReplaceAllString(s, maskString) }

// maxLineBytes is the longest line that is shown, in bytes.
const maxLineBytes = 8192

// excerptAt returns a masked line, and the column of the caret in it. Tabs become spaces, and a long line is
// cut around the caret.
func (d *Document) excerptAt(s textPos) (string, int) {
	if s.line > len(d.lines) {
		return "", s.column
	}
	if len(d.lines[s.line-1]) > maxLineBytes {
		return "(a line of more than " + strconv.Itoa(maxLineBytes) + " bytes)", 0
	}
	runes := []rune(strings.ReplaceAll(d.lines[s.line-1], "\t", " "))
	col := min(max(s.column, 1), len(runes)+1)
	if from := d.secretColumn(s.line); from > 0 && from <= len(runes) {
		runes = append(runes[:from-1:from-1], []rune(maskString)...)
		col = min(col, from)
	}
	text := string(runes)
	if at := secretPattern.FindStringIndex(text); at != nil {
		col = min(col, utf8.RuneCountInString(text[:at[0]])+1)
		text = maskText(text)
	}
	return cutWindow(text, col)
}

// maxExcerptChars is how many characters of a line are shown.
const maxExcerptChars = 160

// cutWindow cuts a long line around the caret and replaces unprintable characters by question marks.
func cutWindow(text string, col int) (string, int) {
	var b strings.Builder
	skip := 0
	if col > maxExcerptChars-20 {
		skip = col - maxExcerptChars/2
		b.WriteString("...")
		col = maxExcerptChars/2 + len("...")
	}
	n := 0
	for _, r := range text {
		if n++; n <= skip {
			continue
		}
		if n > skip+maxExcerptChars {
			b.WriteString("...")
			break
		}
		if r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029 || (r >= 0x80 && r < 0xa0) {
			r = '?'
		}
		b.WriteRune(r)
	}
	return b.String(), col
}

// secretColumn returns the first column of a line that must not be shown, or 0: from the tree if there is one,
// else by the names of the surrounding keys.
func (d *Document) secretColumn(line int) int {
	from := d.secretColumns[line]
	if line < 1 || line > len(d.lines) {
		return from
	}
	text := d.lines[line-1]
	if len(text) > maxLineBytes {
		return 1
	}
	if m := secretKeyPattern.FindStringIndex(text); m != nil {
		rest := strings.TrimLeft(text[m[1]:], " \t")
		return minNonZero(from, utf8.RuneCountInString(text)-utf8.RuneCountInString(rest)+1)
	}
	if d.isUnderSecret(line - 1) {
		rest := strings.TrimLeft(text, " \t-")
		return minNonZero(from, utf8.RuneCountInString(text)-utf8.RuneCountInString(rest)+1)
	}
	return from
}

func minNonZero(a, b int) int {
	if a == 0 || b < a {
		return b
	}
	return a
}

// maxLinesAbove bounds how many lines are searched for the key of a line.
const maxLinesAbove = 200

// isUnderSecret reports whether line i belongs to a key with a secret name: by indentation, or as the
// continuation of a list in brackets.
func (d *Document) isUnderSecret(i int) bool {
	indent, dash := lineIndent(d.lines[i])
	nearest := !keyLinePattern.MatchString(d.lines[i])
	for j := i - 1; j >= 0 && j >= i-maxLinesAbove; j-- {
		if len(d.lines[j]) > maxLineBytes || !keyLinePattern.MatchString(d.lines[j]) {
			continue
		}
		above, aboveDash := lineIndent(d.lines[j])
		if parent := above < indent || above == indent && dash && !aboveDash; parent || nearest {
			if secretKeyPattern.MatchString(d.lines[j]) {
				return true
			}
			if parent {
				indent, dash = above, aboveDash
			}
			nearest = false
		}
	}
	return false
}

func lineIndent(line string) (indent int, dash bool) {
	rest := strings.TrimLeft(line, " ")
	return len(line) - len(rest), strings.HasPrefix(rest, "-")
}
