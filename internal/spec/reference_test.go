package spec_test

import (
	"bytes"
	"encoding"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
	"github.com/spillway-lb/spillway/internal/spec"
)

// The encoding and the comparison of specs as earlier releases had them: simple, and slow.

var referenceAddr = reflect.TypeFor[netip.Addr]()

func referenceIsText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) && t.Kind() != reflect.Int64
}

func referenceFieldName(f reflect.StructField) string { return f.Tag.Get("yaml") }

func referenceEncode(s *spec.Spec) []byte {
	var b bytes.Buffer
	writeStruct(&b, reflect.ValueOf(*s), "")
	if b.Len() == 0 {
		return []byte("{}\n")
	}
	return b.Bytes()
}

func writeStruct(b *bytes.Buffer, v reflect.Value, indent string) {
	for i := range v.NumField() {
		name := referenceFieldName(v.Type().Field(i))
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
	case v.Type() == referenceAddr:
		return v.IsZero()
	case referenceIsText(v.Type()):
		return false
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if referenceFieldName(v.Type().Field(i)) != "" && !isOmitted(v.Field(i)) {
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
		return t == referenceAddr || referenceIsText(t)
	}
	return true
}

func scalarText(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return strict.FormatDuration(x)
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

func referenceDiff(from, to *spec.Spec) []spec.SpecChange {
	var d referenceDiffer
	d.diffStructs("", reflect.ValueOf(*from), reflect.ValueOf(*to))
	return d.changes
}

type referenceDiffer struct{ changes []spec.SpecChange }

func (d *referenceDiffer) addChange(path, from, to string) {
	if from != to {
		d.changes = append(d.changes, spec.SpecChange{Path: path, From: from, To: to})
	}
}

func (d *referenceDiffer) diffStructs(prefix string, a, b reflect.Value) {
	for i := range a.NumField() {
		f := a.Type().Field(i)
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		d.diffValues(prefix+key, a.Field(i), b.Field(i), f.Tag.Get("secret") == "true")
	}
}

func (d *referenceDiffer) diffValues(path string, a, b reflect.Value, secret bool) {
	switch {
	case a.Kind() == reflect.Slice && a.Type().Elem().Kind() == reflect.Struct && a.Type().Elem() != reflect.TypeFor[netip.Addr]():
		d.diffLists(path, a, b)
	case a.Kind() == reflect.Map:
		d.diffMaps(path, a, b)
	case a.Kind() == reflect.Struct:
		d.diffStructs(path+".", a, b)
	default:
		d.addChange(path, formatValue(a, secret), formatValue(b, secret))
	}
}

// diffLists compares items by name.
func (d *referenceDiffer) diffLists(path string, a, b reflect.Value) {
	old, now := indexByName(a), indexByName(b)
	for _, name := range unionNames(a, b) {
		here := path + "[" + name + "]"
		before, had := old[name]
		after, has := now[name]
		switch {
		case had && has:
			d.diffStructs(here+".", before, after)
		case had:
			d.addChange(here, spec.Present, spec.Absent)
		default:
			d.addChange(here, spec.Absent, spec.Present)
		}
	}
}

// itemKey returns the key of a list item: its name, or for an alias target its model and conditions.
func itemKey(v reflect.Value) string {
	if t, ok := v.Interface().(spec.AliasTarget); ok {
		return spec.ConditionKey(&t)
	}
	return v.FieldByName("Name").String()
}

func indexByName(list reflect.Value) map[string]reflect.Value {
	out := make(map[string]reflect.Value, list.Len())
	for i := range list.Len() {
		out[itemKey(list.Index(i))] = list.Index(i)
	}
	return out
}

// unionNames returns every name once, those of the first list first.
func unionNames(lists ...reflect.Value) []string {
	var out []string
	seen := map[string]bool{}
	for _, list := range lists {
		for i := range list.Len() {
			if name := itemKey(list.Index(i)); !seen[name] {
				seen[name] = true
				out = append(out, name)
			}
		}
	}
	return out
}

func (d *referenceDiffer) diffMaps(path string, a, b reflect.Value) {
	keys := map[string]bool{}
	for _, m := range []reflect.Value{a, b} {
		for _, k := range m.MapKeys() {
			keys[k.String()] = true
		}
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		at := reflect.ValueOf(k)
		d.addChange(path+"."+k, formatValue(a.MapIndex(at), false), formatValue(b.MapIndex(at), false))
	}
}

// formatValue formats a scalar or a list of scalars for a change.
func formatValue(v reflect.Value, secret bool) string {
	if !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return ""
	}
	v = reflect.Indirect(v)
	if v.Kind() != reflect.Slice {
		return fmt.Sprint(v.Interface())
	}
	if v.Len() == 0 {
		return ""
	}
	items := make([]string, v.Len())
	for i := range items {
		items[i] = fmt.Sprint(v.Index(i).Interface())
		if secret {
			items[i] = items[i][:15] + "..."
		}
	}
	return "[" + strings.Join(items, ", ") + "]"
}
