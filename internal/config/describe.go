package config

import (
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// IsKind reports whether kind is a role, or "spec".
func IsKind(kind string) bool { return slices.Contains(configKinds(), kind) }

// DescribeConfig prints every key of a role's config file, or of the spec: its type, its default and its
// description. The descriptions are the comments of the structs that files are decoded into.
func DescribeConfig(w io.Writer, role string) error {
	keys, err := listKeys(role)
	if err != nil {
		return err
	}
	return describeKeys(w, keys)
}

// DescribeKey prints one key of a role's config file, or of the spec, and the keys of a section.
func DescribeKey(w io.Writer, role, path string) error {
	keys, err := listKeys(role)
	if err != nil {
		return err
	}
	k := findKey(keys, path)
	if k == nil {
		return fmt.Errorf("%s has no key %q (%s)\nhint: `spillway config describe %s` lists all keys", role, path, suggestPath(path, listPaths(keys)), role)
	}
	return describeKeys(w, []configKey{*k})
}

// FindKey prints one key as described by every role, and by the spec, that has it.
func FindKey(w io.Writer, path string) error {
	var all []string
	found := false
	for _, kind := range configKinds() {
		keys, err := listKeys(kind)
		if err != nil {
			return err
		}
		all = append(all, listPaths(keys)...)
		k := findKey(keys, path)
		if k == nil {
			continue
		}
		found = true
		if _, err := fmt.Fprintf(w, "# %s\n", kind); err != nil {
			return err
		}
		if err := describeKeys(w, []configKey{*k}); err != nil {
			return err
		}
	}
	if !found {
		return fmt.Errorf("%q is neither a role (%s) nor a key of one (%s)\nhint: `spillway config describe ROLE` lists all keys of a role",
			path, strings.Join(configKinds(), ", "), suggestPath(path, append(configKinds(), all...)))
	}
	return nil
}

// suggestPath suggests the path that was probably meant: one that ends with the same key, or else a similar one.
func suggestPath(path string, known []string) string {
	plain := plainPath(path)
	last := plain[strings.LastIndexByte(plain, '.')+1:]
	for _, p := range known {
		if strings.HasSuffix("."+plainPath(p), "."+last) {
			return fmt.Sprintf("did you mean %q?", p)
		}
	}
	return strict.SuggestName(path, known, "keys")
}

// DescribeStruct prints every key of a struct that files are decoded into, as DescribeConfig does; sources are
// the Go files with the comments of its fields.
func DescribeStruct(w io.Writer, root reflect.Type, sources []string) error {
	c := keyComments{texts: map[string]string{}}
	keys, err := c.listKeys(root, sources)
	if err != nil {
		return err
	}
	return describeKeys(w, keys)
}

func describeKeys(w io.Writer, keys []configKey) error {
	for i := range keys {
		k := &keys[i]
		line := k.path + "  (" + typeName(k.typ)
		if k.def != "" {
			line += ", default " + k.def
		}
		line += ")\n"
		if k.comment != "" {
			line += "    " + k.comment + "\n"
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
		if err := describeKeys(w, k.children); err != nil {
			return err
		}
	}
	return nil
}

// typeName returns the name of a Go type for authors of YAML.
func typeName(t reflect.Type) string {
	switch t.String() {
	case "time.Duration", "spec.Duration":
		return "duration"
	case "netip.Addr":
		return "IP address"
	case "spec.Class":
		return "class"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Slice:
		return "list of " + pluralizeWord(typeName(t.Elem()))
	case reflect.Map:
		return typeName(t.Elem()) + " by name"
	case reflect.Struct:
		return "section"
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "text"
	case reflect.Float64:
		return "number"
	}
	return "whole number"
}

func pluralizeWord(word string) string {
	switch word {
	case "IP address", "class":
		return word + "es"
	}
	return word + "s"
}
