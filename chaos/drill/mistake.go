package drill

import (
	"fmt"
	"strings"
)

// fileSpan is a part of a line of a file. Lines and columns count from 1, columns in characters.
type fileSpan struct{ line, column, width int }

// Mistake is one mistake in a drill file.
type Mistake struct {
	File         string
	Line, Column int
	// Text states the mistake, Hint what to write instead.
	Text, Hint string
	// Source is the line, and width how many of its characters are wrong.
	Source string
	width  int
}

// Error formats a mistake with its line and a caret.
func (m *Mistake) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:%d:%d: %s\n", m.File, m.Line, m.Column, m.Text)
	if m.Source != "" {
		lead := make([]rune, 0, m.Column)
		for i, r := range []rune(m.Source) {
			if i >= m.Column-1 {
				break
			}
			if r != '\t' {
				r = ' '
			}
			lead = append(lead, r)
		}
		fmt.Fprintf(&b, "    %s\n    %s^%s\n", m.Source, string(lead), strings.Repeat("~", max(m.width-1, 0)))
	}
	fmt.Fprintf(&b, "  hint: %s", m.Hint)
	return b.String()
}
