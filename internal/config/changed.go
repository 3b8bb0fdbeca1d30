package config

import (
	"reflect"
	"strings"
)

// ChangedKeys returns the keys in which two configs of one role differ, such as "http.listen", in the order of
// their declaration. Values are not included: some are secrets.
func ChangedKeys(old, next any) []string {
	a, b := reflect.ValueOf(old), reflect.ValueOf(next)
	if a.Type() != b.Type() {
		return []string{"role"}
	}
	return changedKeys(nil, "", reflect.Indirect(a), reflect.Indirect(b))
}

func changedKeys(out []string, path string, a, b reflect.Value) []string {
	for i := range a.NumField() {
		f := a.Type().Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if !f.IsExported() || key == "" || key == "-" {
			continue
		}
		at := path + key
		switch {
		case f.Type.Kind() == reflect.Struct && hasKeys(f.Type):
			out = changedKeys(out, at+".", a.Field(i), b.Field(i))
		case !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()):
			out = append(out, at)
		}
	}
	return out
}

// hasKeys reports whether a struct is a section of a config, and not a value such as a time.
func hasKeys(t reflect.Type) bool {
	for i := range t.NumField() {
		if _, ok := t.Field(i).Tag.Lookup("yaml"); ok {
			return true
		}
	}
	return false
}
