package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// tableCell is the text of one cell, and its value for sorting if it is a number.
type tableCell struct {
	text   string
	number float64
	isNum  bool
}

func newTextCell(text string) tableCell { return tableCell{text: dashIfEmpty(text)} }

// newNumberCell returns a cell with a number as text shows it.
func newNumberCell(n float64, text string) tableCell {
	return tableCell{text: text, number: n, isNum: true}
}

func newCountCell(n int64) tableCell { return newNumberCell(float64(n), formatCount(n)) }

// newShareCell returns part of whole in percent, "-" if whole is 0.
func newShareCell(part, whole int64) tableCell {
	if whole <= 0 {
		return newTextCell("")
	}
	share := float64(part) / float64(whole)
	return newNumberCell(share, formatPercent(share))
}

func newAgeCell(ms int64) tableCell {
	if ms < 0 {
		return newTextCell("")
	}
	return newNumberCell(float64(ms), formatAge(ms))
}

func newSecondsCell(s float64) tableCell { return newNumberCell(s, formatSeconds(s)) }

// tableColumn is one column of the tables of a kind of item.
type tableColumn[T any] struct {
	title    string // with the unit, if it has one: "PREFILL tok/s"
	wide     bool   // shown by -o wide alone
	volatile bool   // changes with time alone: a watch does not report a change of it
	cell     func(*T) tableCell
}

// sortKey returns the name of the column for --sort: its title without the unit, in lower case.
func (c *tableColumn[T]) sortKey() string {
	var words []string
	for _, w := range strings.Fields(c.title) {
		if w == strings.ToUpper(w) {
			words = append(words, strings.ToLower(w))
		}
	}
	return strings.Join(words, "-")
}

// itemTable prints items of one kind. Columns keep their widths between calls, so that lines of a watch stay aligned.
type itemTable[T any] struct {
	columns []tableColumn[T]
	widths  []int
}

// newItemTable returns a table of the columns that an output shows.
func newItemTable[T any](columns []tableColumn[T], output string) *itemTable[T] {
	shown := slices.DeleteFunc(slices.Clone(columns), func(c tableColumn[T]) bool { return c.wide && output != outputWide })
	return &itemTable[T]{columns: shown, widths: make([]int, len(shown))}
}

// tableLine is a line of cells. version is equal for lines that differ in volatile cells alone.
type tableLine struct {
	cells   []string
	version string
}

func (t *itemTable[T]) makeLine(item *T) tableLine {
	line := tableLine{cells: make([]string, len(t.columns))}
	var fixed strings.Builder
	for i := range t.columns {
		line.cells[i] = t.columns[i].cell(item).text
		if !t.columns[i].volatile {
			fixed.WriteString(line.cells[i])
			fixed.WriteByte(0)
		}
	}
	line.version = fixed.String()
	return line
}

func (t *itemTable[T]) titleLine() tableLine {
	line := tableLine{cells: make([]string, len(t.columns))}
	for i := range t.columns {
		line.cells[i] = t.columns[i].title
	}
	return line
}

// columnGap separates two columns.
const columnGap = "  "

// printLines writes lines. Columns that are too narrow for them are widened.
func (t *itemTable[T]) printLines(w io.Writer, lines []tableLine) error {
	for i := range lines {
		for k, text := range lines[i].cells {
			t.widths[k] = max(t.widths[k], utf8.RuneCountInString(text))
		}
	}
	var b strings.Builder
	for i := range lines {
		var line strings.Builder
		for k, text := range lines[i].cells {
			if k > 0 {
				line.WriteString(columnGap)
			}
			line.WriteString(text)
			line.WriteString(strings.Repeat(" ", t.widths[k]-utf8.RuneCountInString(text)))
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// sortItems sorts items by a column, in descending order if its name begins with "-". Items without a value are last.
func sortItems[T any](items []T, columns []tableColumn[T], by string) error {
	if by == "" {
		return nil
	}
	name, descending := strings.CutPrefix(strings.ToLower(by), "-")
	i := slices.IndexFunc(columns, func(c tableColumn[T]) bool { return c.sortKey() == name })
	if i < 0 {
		return newUsageMistake(fmt.Errorf("unknown column %q: --sort takes %s, with - before it for descending order", name, strings.Join(listSortKeys(columns), ", ")))
	}
	cell := columns[i].cell
	type keyedItem struct {
		item T
		key  tableCell
	}
	keyed := make([]keyedItem, len(items)) // a cell is formatted once, not for each comparison
	for k := range items {
		keyed[k] = keyedItem{items[k], cell(&items[k])}
	}
	slices.SortStableFunc(keyed, func(a, b keyedItem) int { return compareCells(a.key, b.key, descending) })
	for k := range keyed {
		items[k] = keyed[k].item
	}
	return nil
}

func compareCells(a, b tableCell, descending bool) int {
	aMissing, bMissing := a.text == "-", b.text == "-"
	switch {
	case aMissing || bMissing:
		return cmp.Compare(boolToInt(aMissing), boolToInt(bMissing))
	case descending:
		a, b = b, a
	}
	if a.isNum && b.isNum && !math.IsNaN(a.number) && !math.IsNaN(b.number) {
		return cmp.Compare(a.number, b.number)
	}
	return strings.Compare(a.text, b.text)
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func listSortKeys[T any](columns []tableColumn[T]) (keys []string) {
	for i := range columns {
		keys = append(keys, columns[i].sortKey())
	}
	return keys
}
