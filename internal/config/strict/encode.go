package strict

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Encode writes the struct v as YAML in field order, omitting zero values, so that Decode returns v: each value
// has one text. Types with a text form are always written, because their zero value may be meaningful.
func Encode(v any) []byte {
	root := reflect.Indirect(reflect.ValueOf(v))
	if !root.CanAddr() { // the address of a value gives its text without a copy
		to := reflect.New(root.Type()).Elem()
		to.Set(root)
		root = to
	}
	b := appendStruct(nil, typeLayouts{}.layoutOf(root.Type()), root, 0)
	if len(b) == 0 {
		return []byte("{}\n")
	}
	return b
}

func appendStruct(b []byte, l *typeLayout, v reflect.Value, indent int) []byte {
	for i := range l.fields {
		f := &l.fields[i]
		x := v.Field(f.index)
		if f.typ.isOmitted(x) {
			continue
		}
		b = append(append(appendIndent(b, indent), f.name...), ':')
		b = appendValue(b, f.typ, x, indent+2)
	}
	return b
}

// appendIndent appends that many spaces.
func appendIndent(b []byte, n int) []byte {
	for range n {
		b = append(b, ' ')
	}
	return b
}

func appendValue(b []byte, l *typeLayout, v reflect.Value, indent int) []byte {
	if l.form == formPointer {
		l, v = l.elem, v.Elem()
	}
	switch l.form {
	case formStruct:
		return appendStruct(append(b, '\n'), l, v, indent)
	case formNamedMap:
		b = append(b, '\n')
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, c reflect.Value) int { return strings.Compare(a.String(), c.String()) })
		for _, k := range keys {
			b = append(appendQuoted(appendIndent(b, indent), k.String()), ':')
			b = appendValue(b, l.elem, v.MapIndex(k), indent+2)
		}
		return b
	case formList:
		return appendList(b, l, v, indent)
	}
	return append(appendScalar(append(b, ' '), l, v), '\n')
}

// appendList writes structs one per item, and scalars on one line.
func appendList(b []byte, l *typeLayout, v reflect.Value, indent int) []byte {
	if l.elem.form != formStruct && l.elem.form != formList && l.elem.form != formNamedMap && l.elem.form != formPointer {
		b = append(b, " ["...)
		for i := range v.Len() {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendScalar(b, l.elem, v.Index(i))
		}
		return append(b, "]\n"...)
	}
	b = append(b, '\n')
	const sampled = 16
	list := len(b)
	for i := range v.Len() {
		if i == sampled { // a text of megabytes would otherwise be copied each time that it outgrows its buffer
			b = slices.Grow(b, (len(b)-list)/sampled*(v.Len()-sampled)*5/4)
		}
		begin := len(b)
		if b = appendStruct(b, l.elem, v.Index(i), indent+2); len(b) == begin {
			b = append(appendIndent(b, indent), "- {}\n"...)
			continue
		}
		b[begin+indent] = '-' // the item's first line has the dash
	}
	return b
}

func appendScalar(b []byte, l *typeLayout, v reflect.Value) []byte {
	if l.marshals {
		return appendMarshaled(b, v)
	}
	switch l.form {
	case formString:
		return appendQuoted(b, v.String())
	case formFloat:
		return strconv.AppendFloat(b, v.Float(), 'f', -1, 64)
	case formBool:
		return strconv.AppendBool(b, v.Bool())
	case formInteger:
		if v.Kind() == reflect.Uint64 {
			return strconv.AppendUint(b, v.Uint(), 10)
		}
		return strconv.AppendInt(b, v.Int(), 10)
	}
	return fmt.Append(b, v.Interface())
}

// appendMarshaled appends a value with a text of its own.
func appendMarshaled(b []byte, v reflect.Value) []byte {
	var x any
	if v.CanAddr() {
		x = v.Addr().Interface()
	} else { // the value of a map
		x = v.Interface()
	}
	switch x := x.(type) {
	case *time.Duration:
		return append(b, FormatDuration(*x)...)
	case time.Duration:
		return append(b, FormatDuration(x)...)
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		if err != nil {
			return append(b, `""`...)
		}
		return appendQuoted(b, string(text))
	}
	return b
}

// reservedWords are not parsed as text.
var reservedWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// maxReservedLength is the length of the longest reserved word or name of a number.
const maxReservedLength = len("infinity")

// isReservedWord reports whether a word has a meaning of its own, in any case.
func isReservedWord(s string) bool {
	if len(s) > maxReservedLength {
		return false
	}
	for _, w := range reservedWords {
		if strings.EqualFold(w, s) {
			return true
		}
	}
	return strings.EqualFold(s, "inf") || strings.EqualFold(s, "infinity") || strings.EqualFold(s, "nan")
}

func appendQuoted(b []byte, s string) []byte {
	if isPlainText(s) {
		return append(b, s...)
	}
	return strconv.AppendQuote(b, s)
}

// isPlainText reports whether text needs no quotes: it is a word, a dotted address, or digits with a unit.
func isPlainText(s string) bool {
	if s == "" {
		return false
	}
	if isLetter(s[0]) || s[0] == '/' {
		for i := 1; i < len(s); i++ {
			if !isWordByte(s[i]) {
				return false
			}
		}
		return !isReservedWord(s)
	}
	return isDottedQuad(s) || isAmountWithUnit(s)
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isWordByte(c byte) bool {
	return isLetter(c) || isDigit(c) || c == '_' || c == '.' || c == '/' || c == '-'
}

// isDottedQuad reports whether s is four groups of digits.
func isDottedQuad(s string) bool {
	dots, group := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case isDigit(c):
			group++
		case c == '.' && group > 0:
			dots, group = dots+1, 0
		default:
			return false
		}
	}
	return dots == 3 && group > 0
}

// isAmountWithUnit reports whether s is digits, lower-case letters, and then any of both and dots, and is not a
// number such as 1e5 or 0x1f.
func isAmountWithUnit(s string) bool {
	unit := 0
	for unit < len(s) && isDigit(s[unit]) {
		unit++
	}
	if unit == 0 || unit == len(s) || s[unit] < 'a' || s[unit] > 'z' {
		return false
	}
	for i := unit; i < len(s); i++ {
		if c := s[i]; !isDigit(c) && c != '.' && (c < 'a' || c > 'z') {
			return false
		}
	}
	return strings.IndexByte("ebox", s[unit]) < 0 || !isNumber(s)
}

func isNumber(s string) bool {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return true
	}
	_, err := strconv.ParseInt(s, 0, 64)
	return err == nil
}
