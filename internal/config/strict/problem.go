package strict

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one mistake, with the path of its value. Validators without the text return these; a Document
// turns them into Mistakes with a line and a column.
type Problem struct {
	// Path is the path of the value, "$.regions[0].name". An absent value is shown at its nearest parent.
	Path string
	// Reason is what is wrong, in lower case and without a full stop.
	Reason string
	// Hint is the correction.
	Hint string
	// CaretAtKey puts the caret under the key rather than the value: for maps whose keys are names.
	CaretAtKey bool
	// DependsOn is the other path that the problem depends on, with [*] for any list position: an unknown
	// region depends on "$.regions[*].name". The problem is omitted if a value there could not be decoded,
	// because it would only follow from that mistake.
	DependsOn string
}

// Mistake is one problem with its position in the text.
type Mistake struct {
	Path   string `json:"path"`
	Line   int    `json:"line"`   // from 1
	Column int    `json:"column"` // from 1, in characters
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
	// Excerpt is the line of the text with secrets masked.
	Excerpt string `json:"excerpt"`

	caret int // column of the caret in Excerpt
}

// Error holds all mistakes of one text, by line. Its message is for a terminal.
type Error struct {
	Name     string    `json:"name"` // the file's name
	Mistakes []Mistake `json:"mistakes"`
	Omitted  int       `json:"omitted,omitempty"` // mistakes beyond MaxMistakes
}

// MaxMistakes bounds how many mistakes one Error lists.
const MaxMistakes = 100

// Error prints every mistake: position, reason, the line with a caret, and the hint.
func (e *Error) Error() string {
	var b strings.Builder
	for i, m := range e.Mistakes {
		if i > 0 {
			b.WriteByte('\n')
		}
		m.writeMessage(&b, e.Name)
	}
	if e.Omitted > 0 {
		fmt.Fprintf(&b, "\nand %d more mistakes\n", e.Omitted)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (m *Mistake) writeMessage(b *strings.Builder, name string) {
	fmt.Fprintf(b, "%s:%d:%d: %s\n", name, m.Line, m.Column, m.Reason)
	if m.Excerpt != "" {
		fmt.Fprintf(b, "%5d | %s\n", m.Line, m.Excerpt)
		if m.caret > 0 {
			fmt.Fprintf(b, "      | %s^\n", strings.Repeat(" ", m.caret-1))
		}
	}
	if m.Hint != "" {
		fmt.Fprintf(b, "  hint: %s\n", m.Hint)
	}
}

// nearestName returns the known name that key is probably a misspelling of.
func nearestName(key string, known []string) (string, bool) {
	best, distance := "", 3
	for _, k := range known {
		limit := len(k) / 3
		if d := editDistance(foldName(key), foldName(k)); d < distance && d <= limit {
			best, distance = k, d
		}
	}
	return best, best != ""
}

// SuggestName returns the end of a hint: the nearest known name if there is one, else the choices. noun is the
// plural of the names ("regions").
func SuggestName(name string, known []string, noun string) string {
	if near, ok := nearestName(name, known); ok {
		return `did you mean "` + near + `"?`
	}
	if len(known) == 0 {
		return "there are no " + noun + " yet: add one"
	}
	list := slices.Clone(known)
	more := ""
	if len(list) > 12 {
		list, more = list[:12], ", ..."
	}
	return "the " + noun + " are: " + strings.Join(list, ", ") + more
}

// foldName removes usual variations of a key: case, hyphens and underscores.
func foldName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(s))
}

// editDistance returns the number of insertions, deletions, replacements and swaps of neighbours that turn a
// into b.
func editDistance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
