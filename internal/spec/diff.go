package spec

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// Change is one difference between two specs, in words for people.
type Change struct {
	Path string `json:"path"` // "regions[fra].max_share": list items by name, so that reordering is no change
	From string `json:"from"`
	To   string `json:"to"`
}

// What stands for an item of a list that one of the specs does not have.
const (
	Absent  = "absent"
	Present = "present"
)

// String is the change on one line.
func (c Change) String() string {
	return fmt.Sprintf("%s: %s -> %s", c.Path, orNone(c.From), orNone(c.To))
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// Diff lists what changes from one spec to another, in the order of the spec's fields. A nil spec is an empty one. Keys
// are shown by the first digits of their hashes.
func Diff(from, to *Spec) []Change {
	if from == nil {
		from = &Spec{}
	}
	if to == nil {
		to = &Spec{}
	}
	var d differ
	d.structs("", reflect.ValueOf(*from), reflect.ValueOf(*to))
	return d.changes
}

type differ struct{ changes []Change }

func (d *differ) change(path, from, to string) {
	if from != to {
		d.changes = append(d.changes, Change{path, from, to})
	}
}

func (d *differ) structs(prefix string, a, b reflect.Value) {
	for i := range a.NumField() {
		f := a.Type().Field(i)
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		d.values(prefix+key, a.Field(i), b.Field(i), f.Tag.Get("secret") == "true")
	}
}

func (d *differ) values(path string, a, b reflect.Value, secret bool) {
	switch {
	case a.Kind() == reflect.Slice && a.Type().Elem().Kind() == reflect.Struct && a.Type().Elem() != reflect.TypeFor[netip.Addr]():
		d.lists(path, a, b)
	case a.Kind() == reflect.Map:
		d.maps(path, a, b)
	case a.Kind() == reflect.Struct:
		d.structs(path+".", a, b)
	default:
		d.change(path, word(a, secret), word(b, secret))
	}
}

// lists compares items by their names.
func (d *differ) lists(path string, a, b reflect.Value) {
	old, now := byName(a), byName(b)
	for _, name := range ordered(a, b) {
		here := path + "[" + name + "]"
		before, had := old[name]
		after, has := now[name]
		switch {
		case had && has:
			d.structs(here+".", before, after)
		case had:
			d.change(here, Present, Absent)
		default:
			d.change(here, Absent, Present)
		}
	}
}

// itemKey is what a list's item is called by: its name, or for an alias's target its model and conditions.
func itemKey(v reflect.Value) string {
	if t, ok := v.Interface().(Target); ok {
		return t.key()
	}
	return v.FieldByName("Name").String()
}

func byName(list reflect.Value) map[string]reflect.Value {
	out := make(map[string]reflect.Value, list.Len())
	for i := range list.Len() {
		out[itemKey(list.Index(i))] = list.Index(i)
	}
	return out
}

// ordered lists every name once, those of the first list first.
func ordered(lists ...reflect.Value) []string {
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

func (d *differ) maps(path string, a, b reflect.Value) {
	keys := map[string]bool{}
	for _, m := range []reflect.Value{a, b} {
		for _, k := range m.MapKeys() {
			keys[k.String()] = true
		}
	}
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		at := reflect.ValueOf(k)
		d.change(path+"."+k, word(a.MapIndex(at), false), word(b.MapIndex(at), false))
	}
}

// word is a scalar, or a list of scalars, as a change shows it.
func word(v reflect.Value, secret bool) string {
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
			items[i] = fingerprint(items[i])
		}
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// fingerprint is enough of a key's hash to tell two apart, and of anything else nothing.
func fingerprint(key string) string {
	if _, ok := parseKeyHash(key); !ok {
		return "(not a hash)"
	}
	return key[:len(keyPrefix)+8] + "..."
}
