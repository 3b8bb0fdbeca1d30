package strict

import (
	"bytes"
	"encoding"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Encode writes the struct v as YAML in field order, omitting zero values, so that Decode returns v: each value
// has one text. Types with a text form are always written, because their zero value may be meaningful.
func Encode(v any) []byte {
	var b bytes.Buffer
	writeStruct(&b, reflect.Indirect(reflect.ValueOf(v)), "")
	if b.Len() == 0 {
		return []byte("{}\n")
	}
	return b.Bytes()
}

func writeStruct(b *bytes.Buffer, v reflect.Value, indent string) {
	for i := range v.NumField() {
		name := fieldName(v.Type().Field(i))
		if name == "" || isOmitted(v.Field(i)) {
			continue
		}
		b.WriteString(indent + name + ":")
		writeValue(b, reflect.Indirect(v.Field(i)), indent+"  ")
	}
}

// isOmitted reports whether an absent field means the same as its value.
func isOmitted(v reflect.Value) bool {
	switch {
	case v.Type() == addrType:
		return v.IsZero()
	case isText(v.Type()):
		return false
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if fieldName(v.Type().Field(i)) != "" && !isOmitted(v.Field(i)) {
				return false
			}
		}
		return true
	case v.Kind() == reflect.Slice, v.Kind() == reflect.Map:
		return v.Len() == 0
	}
	return v.IsZero()
}

func writeValue(b *bytes.Buffer, v reflect.Value, indent string) {
	switch {
	case isScalar(v.Type()):
		b.WriteString(" " + scalarText(v) + "\n")
	case v.Kind() == reflect.Struct:
		b.WriteByte('\n')
		writeStruct(b, v, indent)
	case v.Kind() == reflect.Map:
		b.WriteByte('\n')
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, c reflect.Value) int { return strings.Compare(a.String(), c.String()) })
		for _, k := range keys {
			b.WriteString(indent + quoteScalar(k.String()) + ":")
			writeValue(b, v.MapIndex(k), indent+"  ")
		}
	case v.Kind() == reflect.Slice && isScalar(v.Type().Elem()):
		items := make([]string, v.Len())
		for i := range items {
			items[i] = scalarText(v.Index(i))
		}
		b.WriteString(" [" + strings.Join(items, ", ") + "]\n")
	case v.Kind() == reflect.Slice:
		b.WriteByte('\n')
		for i := range v.Len() {
			writeItem(b, v.Index(i), indent)
		}
	}
}

// writeItem writes a struct as a list item: its first line has the dash.
func writeItem(b *bytes.Buffer, v reflect.Value, indent string) {
	var item bytes.Buffer
	writeStruct(&item, v, indent+"  ")
	if item.Len() == 0 {
		b.WriteString(indent + "- {}\n")
		return
	}
	b.WriteString(indent + "- ")
	b.Write(item.Bytes()[len(indent)+2:])
}

func isScalar(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Slice, reflect.Map, reflect.Pointer:
		return false
	case reflect.Struct:
		return t == addrType || isText(t)
	}
	return true
}

func scalarText(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return FormatDuration(x)
	case encoding.TextMarshaler:
		text, err := x.MarshalText()
		if err != nil {
			return `""`
		}
		return quoteScalar(string(text))
	}
	switch v.Kind() {
	case reflect.String:
		return quoteScalar(v.String())
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	}
	return fmt.Sprint(v.Interface())
}

// plainPattern matches text that needs no quotes.
var plainPattern = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$|^[0-9]+(\.[0-9]+){3}$|^[0-9]+[a-z]+[0-9a-z.]*$`)

// reservedWords are not parsed as text.
var reservedWords = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

func quoteScalar(s string) string {
	number := false
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		number = true
	}
	if _, err := strconv.ParseInt(s, 0, 64); err == nil {
		number = true
	}
	if plainPattern.MatchString(s) && !number && !slices.Contains(reservedWords, strings.ToLower(s)) {
		return s
	}
	return strconv.Quote(s)
}
