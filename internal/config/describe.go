package config

import (
	_ "embed" // the sources whose comments explain the keys
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"reflect"
	"strings"

	"github.com/spillway-lb/spillway/internal/spec"
)

//go:embed roles.go
var rolesSource string

//go:embed parts.go
var partsSource string

//go:embed discover.go
var discoverSource string

// Describe prints every key of a role's config file, or of the spec: its type, its default and what it means. The
// meanings are the comments of the very structs that files are read into.
func Describe(w io.Writer, role string) error {
	var root reflect.Type
	if role == "spec" {
		root = reflect.TypeFor[spec.Spec]()
	} else if cfg := blank(role); cfg != nil {
		root = reflect.TypeOf(cfg).Elem()
	} else {
		return unknownKind(role)
	}
	return DescribeStruct(w, root, append([]string{rolesSource, partsSource, discoverSource}, spec.Sources()...))
}

// DescribeStruct prints every key of a struct that files are read into, as Describe does; the Go sources hold the comments of
// its fields.
func DescribeStruct(w io.Writer, root reflect.Type, sources []string) error {
	d := describer{w: w, comments: map[string]string{}}
	for _, source := range sources {
		if err := d.read(source); err != nil {
			return fmt.Errorf("reading the comments of the config's structs: %w", err)
		}
	}
	d.keys(root, "")
	return d.err
}

// describer prints keys with what the comments say of them.
type describer struct {
	w        io.Writer
	comments map[string]string // by "Type.Field"
	err      error
}

// read collects the comments of every struct field of a Go source.
func (d *describer) read(source string) error {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.ParseComments)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if ts, ok := n.(*ast.TypeSpec); ok {
			if st, ok := ts.Type.(*ast.StructType); ok {
				d.fields(ts.Name.Name, st)
			}
		}
		return true
	})
	return nil
}

func (d *describer) fields(typ string, st *ast.StructType) {
	for _, f := range st.Fields.List {
		text := f.Doc.Text() + f.Comment.Text()
		for _, name := range f.Names {
			d.comments[typ+"."+name.Name] = strings.Join(strings.Fields(text), " ")
		}
	}
}

func (d *describer) keys(t reflect.Type, prefix string) {
	for i := range t.NumField() {
		f := t.Field(i)
		key := f.Tag.Get("yaml")
		if key == "" || key == "-" {
			continue
		}
		d.key(prefix+key, f, d.comments[t.Name()+"."+f.Name])
		inner, suffix := f.Type, "."
		if inner.Kind() == reflect.Slice {
			inner, suffix = inner.Elem(), "[]."
		}
		if inner.Kind() == reflect.Struct && typeWord(inner) == "section" {
			d.keys(inner, prefix+key+suffix)
		}
	}
}

func (d *describer) key(path string, f reflect.StructField, comment string) {
	line := path + "  (" + typeWord(f.Type)
	if def := f.Tag.Get("default"); def != "" {
		line += ", default " + def
	}
	line += ")\n"
	if comment != "" {
		line += "    " + comment + "\n"
	}
	if d.err == nil {
		_, d.err = io.WriteString(d.w, line)
	}
}

// typeWord is a Go type as a person who writes YAML would call it.
func typeWord(t reflect.Type) string {
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
		return typeWord(t.Elem())
	case reflect.Slice:
		return "list of " + plural(typeWord(t.Elem()))
	case reflect.Map:
		return typeWord(t.Elem()) + " by name"
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

func plural(word string) string {
	switch word {
	case "IP address", "class":
		return word + "es"
	}
	return word + "s"
}
