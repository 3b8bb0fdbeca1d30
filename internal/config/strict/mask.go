package strict

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

const mask = "********"

// keyLike finds what looks like an API key, a hash, a token or key material wherever it stands.
var keyLike = regexp.MustCompile(`(?i)\b(sk-|rk-|gh[a-z]_|hf_|xox[a-z]-|spw-|akia|api[-_]?key[-_])[a-z0-9_\-]{8,}` +
	`|sha256:[0-9a-z]\S*|bearer\s+\S+|\beyJ[a-z0-9_\-.]{10,}|\b[a-f0-9]{32,}\b|\b[a-z0-9]{40,}|-----begin.*|//[^/\s@"']+@`)

// secretKey finds a key whose value is secret by its name, for text that could not be read as a tree.
var secretKey = regexp.MustCompile(`(?i)(^|[\s{,"'-])(keys|api_?-?keys?|tokens?|secrets?|passwords?|authorization)["']?\s*:`)

// anyKey finds a line that begins with a key of its own.
var anyKey = regexp.MustCompile(`^\s*(-\s+)*[A-Za-z_][\w.-]*\s*:(\s|$)`)

func maskText(s string) string { return keyLike.ReplaceAllString(s, mask) }

// maxLine is the longest line that is shown at all, in bytes.
const maxLine = 8192

// excerpt returns a line as it may be shown, and the column of the caret in it. Spaces stand for tabs, and a long line
// is cut around the caret.
func (d *Document) excerpt(s spot) (string, int) {
	if s.line > len(d.lines) {
		return "", s.col
	}
	if len(d.lines[s.line-1]) > maxLine {
		return "(a line of more than " + strconv.Itoa(maxLine) + " bytes)", 0
	}
	runes := []rune(strings.ReplaceAll(d.lines[s.line-1], "\t", " "))
	col := min(max(s.col, 1), len(runes)+1)
	if from := d.secret(s.line); from > 0 && from <= len(runes) {
		runes = append(runes[:from-1:from-1], []rune(mask)...)
		col = min(col, from)
	}
	text := string(runes)
	if at := keyLike.FindStringIndex(text); at != nil {
		col = min(col, utf8.RuneCountInString(text[:at[0]])+1)
		text = maskText(text)
	}
	return window(text, col)
}

// maxExcerpt is how many characters of a line are shown.
const maxExcerpt = 160

// window cuts a long line around the caret and shows what cannot be printed as a question mark.
func window(text string, col int) (string, int) {
	var b strings.Builder
	skip := 0
	if col > maxExcerpt-20 {
		skip = col - maxExcerpt/2
		b.WriteString("...")
		col = maxExcerpt/2 + len("...")
	}
	n := 0
	for _, r := range text {
		if n++; n <= skip {
			continue
		}
		if n > skip+maxExcerpt {
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

// secret returns the first column of a line that must not be shown, or 0: from the tree where there is one, and by the
// names of the keys around it where there is none.
func (d *Document) secret(line int) int {
	from := d.secrets[line]
	if line < 1 || line > len(d.lines) {
		return from
	}
	text := d.lines[line-1]
	if len(text) > maxLine {
		return 1
	}
	if m := secretKey.FindStringIndex(text); m != nil {
		rest := strings.TrimLeft(text[m[1]:], " \t")
		return least(from, utf8.RuneCountInString(text)-utf8.RuneCountInString(rest)+1)
	}
	if d.underSecret(line - 1) {
		rest := strings.TrimLeft(text, " \t-")
		return least(from, utf8.RuneCountInString(text)-utf8.RuneCountInString(rest)+1)
	}
	return from
}

func least(a, b int) int {
	if a == 0 || b < a {
		return b
	}
	return a
}

// maxAbove bounds how many lines are searched for the key that a line stands under.
const maxAbove = 200

// underSecret reports whether line i stands under a key that is secret by its name: by indentation, or as the
// continuation of a list in brackets.
func (d *Document) underSecret(i int) bool {
	indent, dash := depth(d.lines[i])
	nearest := !anyKey.MatchString(d.lines[i])
	for j := i - 1; j >= 0 && j >= i-maxAbove; j-- {
		if len(d.lines[j]) > maxLine || !anyKey.MatchString(d.lines[j]) {
			continue
		}
		above, aboveDash := depth(d.lines[j])
		if parent := above < indent || above == indent && dash && !aboveDash; parent || nearest {
			if secretKey.MatchString(d.lines[j]) {
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

func depth(line string) (indent int, dash bool) {
	rest := strings.TrimLeft(line, " ")
	return len(line) - len(rest), strings.HasPrefix(rest, "-")
}
