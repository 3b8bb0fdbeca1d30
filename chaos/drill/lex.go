package drill

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// fileWord is a word of a line, with its place.
type fileWord struct {
	text string
	at   fileSpan
}

// lineReader reads the words of one line. Its methods report mistakes to the file and return false.
type lineReader struct {
	file  *fileText
	words []fileWord
	next  int
	end   fileSpan // behind the last word
}

// readLine splits a line into words at spaces; a comma is a word of its own, and # starts a comment.
func readLine(t *fileText, number int) *lineReader {
	r := &lineReader{file: t}
	column, start := 1, -1
	line := t.lines[number-1]
	var from int // byte offset of the word's start
	flush := func(to int) {
		if start > 0 {
			r.words = append(r.words, fileWord{line[from:to], fileSpan{number, start, utf8.RuneCountInString(line[from:to])}})
			start = -1
		}
	}
	for i, c := range line {
		switch {
		case c == '#' && start < 0:
			r.end = fileSpan{number, column, 1}
			return r
		case unicode.IsSpace(c):
			flush(i)
		case c == ',':
			flush(i)
			r.words = append(r.words, fileWord{",", fileSpan{number, column, 1}})
		case start < 0:
			start, from = column, i
		}
		column++
	}
	flush(len(line))
	r.end = fileSpan{number, column, 1}
	if n := len(r.words); n > 0 {
		r.end.column = r.words[n-1].at.column + r.words[n-1].at.width + 1
	}
	return r
}

// restText is the rest of the line as written, without a comment's exception: # is part of a text.
func (r *lineReader) restText() (string, fileSpan) {
	first := r.words[r.next-1]
	line := []rune(r.file.lines[first.at.line-1])
	from := min(first.at.column-1+first.at.width, len(line))
	text := string(line[from:])
	lead := len([]rune(text)) - len([]rune(strings.TrimLeftFunc(text, unicode.IsSpace)))
	trimmed := strings.TrimSpace(text)
	r.next = len(r.words)
	return trimmed, fileSpan{first.at.line, from + lead + 1, max(utf8.RuneCountInString(trimmed), 1)}
}

// peekText is the next word's text; empty at the end.
func (r *lineReader) peekText() string {
	if r.next >= len(r.words) {
		return ""
	}
	return r.words[r.next].text
}

// takeWord returns the next word; at the end it reports that want is missing.
func (r *lineReader) takeWord(want string) (fileWord, bool) {
	if r.next >= len(r.words) {
		r.file.report(r.end, "the line ends too early", "write "+want)
		return fileWord{}, false
	}
	r.next++
	return r.words[r.next-1], true
}

// skipWord takes the next word if it is the given one.
func (r *lineReader) skipWord(text string) bool {
	if r.peekText() != text {
		return false
	}
	r.next++
	return true
}

// expectWord takes the next word, which must be the given one.
func (r *lineReader) expectWord(text string) bool {
	w, ok := r.takeWord(`"` + text + `"`)
	if ok && w.text != text {
		r.file.report(w.at, `found "`+w.text+`" where "`+text+`" is expected`, `write "`+text+`"`)
		return false
	}
	return ok
}

// expectEnd reports words after the end of a statement.
func (r *lineReader) expectEnd() bool {
	if r.next < len(r.words) {
		w := r.words[r.next]
		r.file.report(w.at, `found "`+w.text+`" after the end of the statement`, "remove it, or start a new line")
		return false
	}
	return true
}

// takeQuantity reads a number with an optional unit, attached or as the next word. The span covers both.
func (r *lineReader) takeQuantity(want string, units ...string) (v float64, unit string, at fileSpan, ok bool) {
	w, ok := r.takeWord(want)
	if !ok {
		return 0, "", w.at, false
	}
	v, unit, ok = splitUnit(w.text)
	at = w.at
	if !ok {
		r.file.report(w.at, `"`+w.text+`" is not a number`, "write "+want)
		return 0, "", at, false
	}
	if unit == "" {
		for _, u := range units {
			if r.peekText() == u {
				n := r.words[r.next]
				r.next++
				return v, u, fileSpan{at.line, at.column, n.at.column + n.at.width - at.column}, true
			}
		}
	}
	return v, unit, at, true
}

// takeTime reads a time, such as 30 s or 150ms.
func (r *lineReader) takeTime() (time.Duration, fileSpan, bool) {
	const want = "a time such as 30 s, 150 ms or 2 min"
	v, unit, at, ok := r.takeQuantity(want, "s", "ms", "min", "us")
	if !ok {
		return 0, at, false
	}
	u, known := durationUnits[unit]
	if !known {
		text := "the time has no unit"
		if unit != "" {
			text = `"` + unit + `" is not a unit of time`
		}
		r.file.report(at, text, "write "+want)
		return 0, at, false
	}
	d, ok := toDuration(v, u)
	if !ok {
		r.file.report(at, "the time is longer than an hour", "use at most 60 min")
	}
	return d, at, ok
}

// takeShare reads a percentage as a fraction.
func (r *lineReader) takeShare(most float64) (float64, fileSpan, bool) {
	v, unit, at, ok := r.takeQuantity("a percentage such as 99 %", "%")
	if !ok {
		return 0, at, false
	}
	if unit != "%" {
		r.file.report(at, "the percentage has no %", "write a percentage such as 99 %")
		return 0, at, false
	}
	if v > most {
		r.file.report(at, "the percentage is too large", "use at most "+formatNumber(most)+" %")
		return 0, at, false
	}
	return fromPercent(v), at, true
}

// takeCount reads a whole number between two bounds.
func (r *lineReader) takeCount(low, high int) (int, bool) {
	want := "a whole number from " + formatNumber(float64(low)) + " to " + formatNumber(float64(high))
	v, unit, at, ok := r.takeQuantity(want)
	if !ok {
		return 0, false
	}
	if unit != "" || v != float64(int(v)) || int(v) < low || int(v) > high {
		r.file.report(at, `"`+r.words[r.next-1].text+`" is out of range`, "write "+want)
		return 0, false
	}
	return int(v), true
}
