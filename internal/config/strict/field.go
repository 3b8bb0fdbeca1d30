package strict

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// fieldName returns the YAML key of a field, "" for fields without one.
func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if name == "-" || !f.IsExported() {
		return ""
	}
	return name
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		if n := fieldName(t.Field(i)); n != "" {
			names = append(names, n)
		}
	}
	return names
}

func findField(t reflect.Type, key string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); fieldName(f) == key && key != "" {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// SetDefaults fills the struct that v points to, and nested structs, from their default tags. An invalid tag is
// a programming error and panics.
func SetDefaults(v any) { setDefaults(reflect.ValueOf(v).Elem()) }

func setDefaults(v reflect.Value) {
	for i := range v.NumField() {
		f, to := v.Type().Field(i), v.Field(i)
		if fieldName(f) == "" {
			continue
		}
		def, tagged := f.Tag.Lookup("default")
		switch {
		case tagged:
			if err := setText(to, def); err != nil {
				panic(fmt.Sprintf("default of %s.%s: %v", v.Type(), f.Name, err))
			}
		case to.Kind() == reflect.Struct && to.Type() != addrType && !isText(to.Type()):
			setDefaults(to)
		}
	}
}

func setText(v reflect.Value, s string) error {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		return setText(v.Elem(), s)
	}
	switch to := v.Addr().Interface().(type) {
	case *time.Duration:
		d, err := ParseDuration(s)
		*to = d
		return err
	case encoding.TextUnmarshaler:
		return to.UnmarshalText([]byte(s))
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(s)
	case reflect.Bool:
		b, err := strconv.ParseBool(s)
		v.SetBool(b)
		return err
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(s, 10, 64)
		v.SetInt(i)
		return err
	case reflect.Float64:
		f, err := strconv.ParseFloat(s, 64)
		v.SetFloat(f)
		return err
	case reflect.Slice:
		v.Set(reflect.Zero(v.Type()))
		for _, item := range strings.Split(s, ",") {
			v.Set(reflect.Append(v, reflect.ValueOf(strings.TrimSpace(item))))
		}
	default:
		return fmt.Errorf("kind %s takes no default", v.Kind())
	}
	return nil
}

// joinPath appends a key to a path, quoted where the key is not a plain word.
func joinPath(path, key string) string { return path + "." + QuoteKey(key) }

// QuoteKey returns a map key for a path: quoted if it is not a plain word.
func QuoteKey(key string) string {
	plain := key != ""
	for _, r := range key {
		plain = plain && (r == '_' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z')
	}
	if plain {
		return key
	}
	return strconv.Quote(key)
}

func isSecretKey(key string) bool { return secretKeyPattern.MatchString(key + ":") }
