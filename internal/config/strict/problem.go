package strict

import (
	"fmt"
	"strings"
)

// Problem is one mistake by the path of the value that holds it. A judge that has no text at hand returns these; a
// Document turns them into Mistakes with a line and a column.
type Problem struct {
	// Path is the value's place, "$.regions[0].name". A value that is absent is shown at its nearest parent.
	Path string
	// Reason says what is wrong, in lower case and without a full stop.
	Reason string
	// Hint says what to write instead.
	Hint string
	// AtKey puts the caret under the key rather than the value: for maps whose keys are names.
	AtKey bool
	// Needs is what this judgement rests on besides its own path, [*] standing for any position in a list: an unknown
	// region rests on "$.regions[*].name". The problem is left out where a value there could not be read, because it
	// would only echo the mistake there.
	Needs string
}

// Mistake is one problem with its place in the text.
type Mistake struct {
	Path   string `json:"path"`
	Line   int    `json:"line"`   // from 1
	Column int    `json:"column"` // from 1, in characters
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"`
	// Excerpt is the text's line with secrets masked.
	Excerpt string `json:"excerpt"`

	caret int // column of the caret in Excerpt
}

// Error is every mistake of one text, by line. Its message is what a person reads at a terminal.
type Error struct {
	Name     string    `json:"name"` // the file's name
	Mistakes []Mistake `json:"mistakes"`
	Omitted  int       `json:"omitted,omitempty"` // mistakes beyond MaxMistakes
}

// MaxMistakes bounds how many mistakes one Error lists.
const MaxMistakes = 100

// Error prints every mistake: place, reason, the line with a caret, and the hint.
func (e *Error) Error() string {
	var b strings.Builder
	for i, m := range e.Mistakes {
		if i > 0 {
			b.WriteByte('\n')
		}
		m.write(&b, e.Name)
	}
	if e.Omitted > 0 {
		fmt.Fprintf(&b, "\nand %d more mistakes\n", e.Omitted)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func (m *Mistake) write(b *strings.Builder, name string) {
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
