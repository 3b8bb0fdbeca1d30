package config

import (
	_ "embed" // the sources whose comments document the keys
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/spec"
)

//go:embed roles.go
var rolesSource string

//go:embed parts.go
var partsSource string

//go:embed discover.go
var discoverSource string

//go:embed kubernetes.go
var kubernetesSource string

// configKey is one key of a config file. `config describe` and `config schema` are generated from the table of keys.
type configKey struct {
	path     string       // such as workers[].gpu
	typ      reflect.Type // of its value
	def      string       // its default, "" for none
	comment  string       // the comment of the struct field, which begins with the YAML key
	children []configKey  // of a section or a list of sections
}

// listKeys lists the keys of a role's config file, or of the spec, in the order of the struct fields.
func listKeys(role string) ([]configKey, error) {
	var root reflect.Type
	if role == "spec" {
		root = reflect.TypeFor[spec.Spec]()
	} else if cfg := newRoleConfig(role); cfg != nil {
		root = reflect.TypeOf(cfg).Elem()
	} else {
		return nil, unknownKindError(role)
	}
	c := keyComments{texts: map[string]string{}}
	return c.listKeys(root, append([]string{rolesSource, partsSource, discoverSource, kubernetesSource}, spec.TypeSources()...))
}

// keyComments holds the comments of struct fields.
type keyComments struct {
	texts map[string]string // by "Type.Field"
}

// listKeys lists the keys of root with the comments in sources.
func (c *keyComments) listKeys(root reflect.Type, sources []string) ([]configKey, error) {
	for _, source := range sources {
		if err := c.readComments(source); err != nil {
			return nil, fmt.Errorf("reading the comments of the config's structs: %w", err)
		}
	}
	return c.listFields(root, ""), nil
}

// readComments collects the comments of every struct field of a Go source.
func (c *keyComments) readComments(source string) error {
	file, err := parser.ParseFile(token.NewFileSet(), "", source, parser.ParseComments)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if ts, ok := n.(*ast.TypeSpec); ok {
			if st, ok := ts.Type.(*ast.StructType); ok {
				c.addFields(ts.Name.Name, st)
			}
		}
		return true
	})
	return nil
}

func (c *keyComments) addFields(typ string, st *ast.StructType) {
	for _, f := range st.Fields.List {
		text := f.Doc.Text() + f.Comment.Text()
		for _, name := range f.Names {
			c.texts[typ+"."+name.Name] = nameByKey(strings.Join(strings.Fields(text), " "), name.Name, f.Tag)
		}
	}
}

// nameByKey replaces the field's name at the beginning of its comment by its YAML key: users do not know Go identifiers.
func nameByKey(comment, field string, tag *ast.BasicLit) string {
	rest, ok := strings.CutPrefix(comment, field+" ")
	if !ok || tag == nil {
		return comment
	}
	key := reflect.StructTag(strings.Trim(tag.Value, "`")).Get("yaml")
	if key == "" || key == "-" {
		return comment
	}
	return key + " " + rest
}

func (c *keyComments) listFields(t reflect.Type, prefix string) (keys []configKey) {
	for i := range t.NumField() {
		f := t.Field(i)
		name := f.Tag.Get("yaml")
		if name == "" || name == "-" {
			continue
		}
		k := configKey{path: prefix + name, typ: f.Type, def: f.Tag.Get("default"), comment: c.texts[t.Name()+"."+f.Name]}
		inner, suffix := f.Type, "."
		if inner.Kind() == reflect.Slice {
			inner, suffix = inner.Elem(), "[]."
		} else if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && typeName(inner) == "section" {
			k.children = c.listFields(inner, k.path+suffix)
		}
		keys = append(keys, k)
	}
	return keys
}

// name returns the last part of the key's path.
func (k *configKey) name() string { return k.path[strings.LastIndexByte(k.path, '.')+1:] }

// findKey finds a key by its path. The [] of lists may be omitted, or contain an index.
func findKey(keys []configKey, path string) *configKey {
	want := plainPath(path)
	for i := range keys {
		k := &keys[i]
		if plainPath(k.path) == want {
			return k
		}
		if strings.HasPrefix(want, plainPath(k.path)+".") {
			return findKey(k.children, path)
		}
	}
	return nil
}

// plainPath removes brackets and what is between them from a key's path.
func plainPath(path string) string {
	var b strings.Builder
	inside := false
	for _, r := range path {
		switch {
		case r == '[':
			inside = true
		case r == ']':
			inside = false
		case !inside:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// listPaths lists the paths of keys and of their children.
func listPaths(keys []configKey) (paths []string) {
	for i := range keys {
		paths = append(append(paths, keys[i].path), listPaths(keys[i].children)...)
	}
	return slices.Clip(paths)
}
