package config

import (
	"embed"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// LoadFile reads a config file. It returns a *Global, *Regional, *Local or *SimulatedWorker, by the role of the
// file; the error for a readable file is an *Error.
func LoadFile(path string) (any, error) {
	text, err := readConfigFile(path)
	if err != nil {
		return nil, err
	}
	return Decode(path, text)
}

// readConfigFile reads at most one byte more than the size limit of a config, so that a larger file is
// detected.
func readConfigFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the config: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, strict.MaxTextBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the config: %w", err)
	}
	return text, nil
}

//go:embed examples/*.yaml
var exampleFiles embed.FS

// configKinds are the kinds that WriteExample and DescribeConfig support: every role, and the spec.
func configKinds() []string { return append(RoleNames(), "spec") }

// WriteExample writes a commented example of a role's config file, or of the spec.
func WriteExample(w io.Writer, role string) error {
	if !slices.Contains(configKinds(), role) {
		return unknownKindError(role)
	}
	text, err := exampleFiles.ReadFile("examples/" + role + ".yaml")
	if err != nil {
		return fmt.Errorf("reading the example: %w", err)
	}
	_, err = w.Write(text)
	return err
}

func unknownKindError(role string) error {
	return fmt.Errorf("unknown role %q: write one of %s (%s)", role, strings.Join(configKinds(), ", "), strict.SuggestName(role, configKinds(), "roles"))
}

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
