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
	d := specDiffer{fields: map[reflect.Type][]specField{}}
	d.diffStructs("", reflect.ValueOf(from).Elem(), reflect.ValueOf(to).Elem())
	return d.changes
}

type specDiffer struct {
	changes []SpecChange
	fields  map[reflect.Type][]specField // of the structs seen so far
}

func (d *specDiffer) addChange(path, from, to string) {
	if from != to {
		d.changes = append(d.changes, SpecChange{path, from, to})
	}
}

// specField is one field of a struct that has a key.
type specField struct {
	index  int
	key    string
	secret bool
}

// fieldsOf lists the fields of a struct that have a key.
func (d *specDiffer) fieldsOf(t reflect.Type) []specField {
	out, ok := d.fields[t]
	if ok {
		return out
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if key := f.Tag.Get("yaml"); key != "" {
			out = append(out, specField{i, key, f.Tag.Get("secret") == "true"})
		}
	}
	d.fields[t] = out
	return out
}

// isItem reports whether a list of the type holds items that are compared by identity.
func isItem(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t != reflect.TypeFor[netip.Addr]()
}

func (d *specDiffer) diffStructs(prefix string, a, b reflect.Value) {
	for _, f := range d.fieldsOf(a.Type()) {
		x, y := a.Field(f.index), b.Field(f.index)
		if !d.equalValues(x, y) {
			d.diffValues(prefix+f.key, x, y, f.secret)
		}
	}
}

// equalValues reports whether two values have the same keys and values. Most objects of two specs are the same, and
// formatting them would cost a hundred times as much. Lists of one order are compared, others are not the same.
func (d *specDiffer) equalValues(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Struct:
		if !isItem(a.Type()) {
			return a.Interface() == b.Interface()
		}
		for _, f := range d.fieldsOf(a.Type()) {
			if !d.equalValues(a.Field(f.index), b.Field(f.index)) {
				return false
			}
		}
		return true
	case reflect.Slice:
		if a.Len() != b.Len() {
			return false
		}
		if a.Len() == 0 || a.UnsafePointer() == b.UnsafePointer() {
			return true
		}
		for i := range a.Len() {
			if !d.equalValues(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return true
	case reflect.Map:
		if a.Len() != b.Len() {
			return false
		}
		for of := a.MapRange(); of.Next(); {
			if other := b.MapIndex(of.Key()); !other.IsValid() || !d.equalValues(of.Value(), other) {
				return false
			}
		}
		return true
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			return a.IsNil() == b.IsNil()
		}
		return d.equalValues(a.Elem(), b.Elem())
	}
	return a.Equal(b)
}

func (d *specDiffer) diffValues(path string, a, b reflect.Value, secret bool) {
	switch {
	case a.Kind() == reflect.Slice && isItem(a.Type().Elem()):
		d.diffLists(path, a, b)
	case a.Kind() == reflect.Map:
		d.diffMaps(path, a, b)
	case a.Kind() == reflect.Struct:
		d.diffStructs(path+".", a, b)
	default:
		d.addChange(path, formatValue(a, secret), formatValue(b, secret))
	}
}

// diffLists compares items by identity.
func (d *specDiffer) diffLists(path string, a, b reflect.Value) {
	old, now := indexItems(a), indexItems(b)
	diff := func(x, y reflect.Value) {
		switch {
		case x.IsValid() && y.IsValid():
			if !d.equalValues(x, y) {
				d.diffStructs(path+"["+itemName(x)+"].", x, y)
			}
		case x.IsValid():
			d.addChange(path+"["+itemName(x)+"]", Present, Absent)
		default:
			d.addChange(path+"["+itemName(y)+"]", Absent, Present)
		}
	}
	for i := range a.Len() {
		x, at := a.Index(i), -1
		// Items mostly have the same position in both lists.
		if key := itemKey(x); i < b.Len() && itemKey(b.Index(i)) == key {
			at = i
		} else if k, ok := now[key]; ok {
			at = k
		}
		if at < 0 {
			diff(x, reflect.Value{})
		} else {
			diff(x, b.Index(at))
		}
	}
	for i := range b.Len() {
		if _, ok := old[itemKey(b.Index(i))]; !ok {
			diff(reflect.Value{}, b.Index(i))
		}
	}
	if a.Type().Elem() == reflect.TypeFor[WorkerPool]() {
		before, after := commonNames(a, now), commonNames(b, old)
		d.addChange(path, formatValue(reflect.ValueOf(before), false), formatValue(reflect.ValueOf(after), false))
	}
}

// commonNames lists the items that are in the other list too. The order of pools matters: a request belongs to the
// first one that it matches.
func commonNames(list reflect.Value, other map[string]int) (names []string) {
	for i := range list.Len() {
		if _, ok := other[itemKey(list.Index(i))]; ok {
			names = append(names, itemName(list.Index(i)))
		}
	}
	return names
}

// itemKey returns the identity of a list item: its name, or what distinguishes an item without one.
func itemKey(v reflect.Value) string {
	switch x := v.Addr().Interface().(type) {
	case *AliasTarget:
		return x.conditionKey()
	case *CAAProperty:
		return x.Tag + " " + x.Value
	case *TimedKey:
		return x.Hash
	case *TokenIssuer:
		return x.Issuer
	case *Tenant:
		return x.Name
	}
	return v.FieldByName("Name").String()
}

// itemName returns the identity of a list item as it is shown.
func itemName(v reflect.Value) string {
	if k, ok := v.Addr().Interface().(*TimedKey); ok {
		return keyFingerprint(k.Hash)
	}
	return itemKey(v)
}

// hasIdentity reports whether itemKey tells items of the type apart.
func hasIdentity(t reflect.Type) bool {
	switch t {
	case reflect.TypeFor[AliasTarget](), reflect.TypeFor[CAAProperty](), reflect.TypeFor[TimedKey](), reflect.TypeFor[TokenIssuer]():
		return true
	}
	f, ok := t.FieldByName("Name")
	return ok && f.Type.Kind() == reflect.String
}

// indexItems returns the positions of the items by identity.
func indexItems(list reflect.Value) map[string]int {
	out := make(map[string]int, list.Len())
	for i := range list.Len() {
		out[itemKey(list.Index(i))] = i
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
