package drill

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxMistakes bounds the mistakes that are reported at a time.
const maxMistakes = 20

// MistakeList is the mistakes of a file, in the order of lines.
type MistakeList []*Mistake

// Error joins the mistakes.
func (l MistakeList) Error() string {
	var out []string
	for i, m := range l {
		if i == maxMistakes {
			out = append(out, fmt.Sprintf("and %d more mistakes", len(l)-i))
			break
		}
		out = append(out, m.Error())
	}
	return strings.Join(out, "\n")
}

// fileText is a file under reading, with its mistakes so far.
type fileText struct {
	name     string
	lines    []string
	mistakes MistakeList
}

// report adds a mistake at a part of a line; a zero span is the whole file.
func (t *fileText) report(at fileSpan, text, hint string) {
	m := &Mistake{File: t.name, Line: max(at.line, 1), Column: max(at.column, 1), Text: text, Hint: hint, width: at.width}
	if at.line >= 1 && at.line <= len(t.lines) {
		m.Source = t.lines[at.line-1]
		m.width = min(at.width, max(utf8.RuneCountInString(m.Source)-at.column+1, 1))
	}
	t.mistakes = append(t.mistakes, m)
}
