package strict

import (
	"encoding"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// plainScalar is a scalar of plain YAML.
type plainScalar struct {
	text string
	kind scalarKind
}

type scalarKind uint8

const (
	scalarText    scalarKind = iota // text, quoted or not
	scalarInteger                   // digits
	scalarFloat                     // digits with a fraction
	scalarBool                      // true or false
)

// readKey reads a key and its colon.
func (d *plainDecoder) readKey() (string, bool) {
	if !d.countTokens(2) {
		return "", false
	}
	key, ok := "", false
	if d.peekByte() == '"' {
		key, ok = d.readDoubleQuoted()
	} else {
		begin := d.pos
		for d.pos < len(d.text) && isWordByte(d.text[d.pos]) {
			d.pos++
		}
		key = d.text[begin:d.pos]
		ok = key != "" && isLetter(key[0]) && !isTypedWord(key) || isPlainText(key) // of a field, or as Encode writes it
	}
	if !ok || key == "" || len(key) > maxKeyBytes || !d.takeByte(':') {
		return "", false
	}
	c := d.peekByte()
	return key, c == ' ' || c == '\n' || c == 0
}

// isTypedWord reports whether YAML takes a word for something else than text.
func isTypedWord(s string) bool {
	return strings.EqualFold(s, "true") || strings.EqualFold(s, "false") || strings.EqualFold(s, "null")
}

// readScalar reads a scalar that ends on its line.
func (d *plainDecoder) readScalar() (plainScalar, bool) {
	switch d.peekByte() {
	case '"':
		text, ok := d.readDoubleQuoted()
		return plainScalar{text, scalarText}, ok
	case '\'':
		text, ok := d.readSingleQuoted()
		return plainScalar{text, scalarText}, ok
	}
	return d.readUnquoted()
}

// readDoubleQuoted reads a text in double quotes. Of the escapes it knows those of quotes, backslashes and line ends.
func (d *plainDecoder) readDoubleQuoted() (string, bool) {
	begin := d.pos + 1
	for i := begin; i < len(d.text); i++ {
		switch d.text[i] {
		case '"':
			d.pos = i + 1
			return d.text[begin:i], true
		case '\n':
			return "", false
		case '\\':
			return d.readEscaped(begin, i)
		}
	}
	return "", false
}

// readEscaped is readDoubleQuoted for a text with a backslash at i.
func (d *plainDecoder) readEscaped(begin, i int) (string, bool) {
	out := append(make([]byte, 0, i-begin+32), d.text[begin:i]...)
	for ; i < len(d.text); i++ {
		switch c := d.text[i]; c {
		case '"':
			d.pos = i + 1
			return string(out), true
		case '\n':
			return "", false
		case '\\':
			if i++; i == len(d.text) {
				return "", false
			}
			switch d.text[i] {
			case '"', '\\':
				out = append(out, d.text[i])
			case 'n':
				out = append(out, '\n')
			default:
				return "", false
			}
		default:
			out = append(out, c)
		}
	}
	return "", false
}

// readSingleQuoted reads a text in single quotes that has neither quotes nor backslashes.
func (d *plainDecoder) readSingleQuoted() (string, bool) {
	begin := d.pos + 1
	n := strings.IndexAny(d.text[begin:], "'\\\n")
	if n < 0 || d.text[begin+n] != '\'' {
		return "", false
	}
	d.pos = begin + n + 1
	return d.text[begin : begin+n], d.peekByte() != '\''
}

// readUnquoted reads words of letters, digits and a few marks, with one space between two of them.
func (d *plainDecoder) readUnquoted() (plainScalar, bool) {
	begin := d.pos
	words := d.pos < len(d.text) && isLetter(d.text[begin])
	for ; d.pos < len(d.text); d.pos++ {
		switch c := d.text[d.pos]; {
		case isWordByte(c), c == '@', c == '+':
			continue
		case c == ':' && d.pos+1 < len(d.text) && isWordByte(d.text[d.pos+1]):
			continue
		case c == ' ' && words && d.pos+1 < len(d.text) && (isLetter(d.text[d.pos+1]) || isDigit(d.text[d.pos+1])):
			continue
		}
		break
	}
	return classifyUnquoted(d.text[begin:d.pos])
}

// classifyUnquoted returns what Parse takes unquoted text for. It returns false where that is not obvious.
func classifyUnquoted(s string) (plainScalar, bool) {
	switch {
	case s == "true" || s == "false":
		return plainScalar{s, scalarBool}, true
	case s == "" || isReservedWord(s):
		return plainScalar{}, false
	case isLetter(s[0]) || s[0] == '/':
		return plainScalar{s, scalarText}, true
	case isDottedQuad(s) || isAmountWithUnit(s):
		return plainScalar{s, scalarText}, true
	}
	digits := strings.TrimPrefix(s, "-")
	whole, fraction, isFloat := strings.Cut(digits, ".")
	if !areDigits(whole) || len(whole) > maxPlainDigits || len(whole) > 1 && whole[0] == '0' || isFloat && !areDigits(fraction) {
		return plainScalar{}, false
	}
	if isFloat {
		return plainScalar{s, scalarFloat}, true
	}
	return plainScalar{s, scalarInteger}, true
}

// maxPlainDigits bounds the digits of a number before its fraction, so that it fits its type.
const maxPlainDigits = 18

func areDigits(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

// setValue stores the scalar. It returns false if the type needs another one.
func (s plainScalar) setValue(v reflect.Value, l *typeLayout) bool {
	switch l.form {
	case formText:
		return s.kind != scalarBool && s.unmarshalText(v)
	case formString:
		if s.kind != scalarText {
			return false
		}
		if v.String() != s.text { // else it is the default
			v.SetString(strings.Clone(s.text)) // a part of the text would keep all of it in memory
		}
		return true
	case formBool:
		v.SetBool(s.text == "true")
		return s.kind == scalarBool
	case formFloat:
		f, err := strconv.ParseFloat(s.text, 64)
		v.SetFloat(dropNegativeZero(f))
		return err == nil && (s.kind == scalarInteger || s.kind == scalarFloat)
	case formInteger:
		return s.kind == scalarInteger && s.setInteger(v)
	}
	return false
}

func (s plainScalar) setInteger(v reflect.Value) bool {
	if v.Kind() == reflect.Uint64 {
		n, err := strconv.ParseUint(s.text, 10, 64)
		v.SetUint(n)
		return err == nil
	}
	n, err := strconv.ParseInt(s.text, 10, 64)
	v.SetInt(n)
	return err == nil
}

func (s plainScalar) unmarshalText(v reflect.Value) (ok bool) {
	var err error
	switch to := v.Addr().Interface().(type) {
	case *netip.Addr:
		*to, err = parseAddr(s.text)
	case *time.Duration:
		*to, err = ParseDuration(s.text)
	case encoding.TextUnmarshaler:
		err = to.UnmarshalText([]byte(s.text))
	}
	return err == nil
}
