package spec

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
)

// SpecChange is one difference between two specs, for people.
type SpecChange struct {
	Path string `json:"path"` // "regions[fra].max_share": list items by name, so that reordering is not a change
	From string `json:"from"`
	To   string `json:"to"`
}

// Placeholders for a list item that one of the specs lacks.
const (
	Absent  = "absent"
	Present = "present"
)

// String returns the change on one line.
func (c SpecChange) String() string {
	return fmt.Sprintf("%s: %s -> %s", c.Path, orNone(c.From), orNone(c.To))
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// DiffSpecs lists the changes from one spec to another, in the order of the spec's fields. A nil spec is an
// empty one. Keys are shown by the first digits of their hashes.
func DiffSpecs(from, to *Spec) []SpecChange {
	if from == nil {
		from = &Spec{}
	}
	if to == nil {
		to = &Spec{}
	}
	var d specDiffer
	d.diffStructs("", reflect.ValueOf(*from), reflect.ValueOf(*to))
	return d.changes
}

type specDiffer struct{ changes []SpecChange }

func (d *specDiffer) addChange(path, from, to string) {
	if from != to {
		d.changes = append(d.changes, SpecChange{path, from, to})
	}
}

func (d *specDiffer) diffStructs(prefix string, a, b reflect.Value) {
	for i := range a.NumField() {
		f := a.Type().Field(i)
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		d.diffValues(prefix+key, a.Field(i), b.Field(i), f.Tag.Get("secret") == "true")
	}
}

func (d *specDiffer) diffValues(path string, a, b reflect.Value, secret bool) {
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
func (d *specDiffer) diffLists(path string, a, b reflect.Value) {
	old, now := indexByName(a), indexByName(b)
	for _, name := range unionNames(a, b) {
		here := path + "[" + name + "]"
		before, had := old[name]
		after, has := now[name]
		switch {
		case had && has:
			d.diffStructs(here+".", before, after)
		case had:
			d.addChange(here, Present, Absent)
		default:
			d.addChange(here, Absent, Present)
		}
	}
}

// itemKey returns the key of a list item: its name, or for an alias target its model and conditions.
func itemKey(v reflect.Value) string {
	if t, ok := v.Interface().(AliasTarget); ok {
		return t.conditionKey()
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

func (d *specDiffer) diffMaps(path string, a, b reflect.Value) {
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
			items[i] = keyFingerprint(items[i])
		}
	}
	return "[" + strings.Join(items, ", ") + "]"
}

// keyFingerprint returns the first digits of a key's hash, enough to distinguish keys, and nothing of any other
// value.
func keyFingerprint(key string) string {
	if _, ok := parseKeyHash(key); !ok {
		return "(not a hash)"
	}
	return key[:len(keyPrefix)+8] + "..."
}
