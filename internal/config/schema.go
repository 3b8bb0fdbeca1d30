package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/spillway-lb/spillway/internal/spec"
)

// schemaDialect is the JSON Schema draft of WriteSchema.
const schemaDialect = "https://json-schema.org/draft/2020-12/schema"

// durationPattern matches the durations that strict.ParseDuration accepts, such as 250ms, 1h30m or -5s.
const durationPattern = `^[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$`

// schemaNode is one schema. Its fields are the keywords that Spillway's schemas use.
type schemaNode struct {
	Schema      string            `json:"$schema,omitempty"`
	Title       string            `json:"title,omitempty"`
	Description string            `json:"description,omitempty"`
	Type        string            `json:"type,omitempty"`
	Const       string            `json:"const,omitempty"`
	Enum        []string          `json:"enum,omitempty"`
	Pattern     string            `json:"pattern,omitempty"`
	Minimum     *int              `json:"minimum,omitempty"`
	Default     any               `json:"default,omitempty"`
	Items       *schemaNode       `json:"items,omitempty"`
	Properties  *schemaProperties `json:"properties,omitempty"`
	Required    []string          `json:"required,omitempty"`
	// AdditionalProperties is false for a section, whose keys are fixed, and the schema of the values of a map.
	AdditionalProperties any `json:"additionalProperties,omitempty"`
}

// schemaProperties holds the schemas of a section's keys in the order of `config describe`.
type schemaProperties struct {
	names []string
	nodes []*schemaNode
}

// MarshalJSON writes an object with the keys in order.
func (p *schemaProperties) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, name := range p.names {
		if i > 0 {
			b.WriteByte(',')
		}
		text, err := json.Marshal(p.nodes[i])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%q:%s", name, text)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// WriteSchema writes the JSON Schema of a role's config file, or of the spec. It describes the form: keys, types and
// defaults. Rules between keys are checked by Decode only.
func WriteSchema(w io.Writer, role string) error {
	keys, err := listKeys(role)
	if err != nil {
		return err
	}
	root := newSectionSchema(keys)
	root.Schema = schemaDialect
	root.Title = "Spillway config of role " + role
	if role == "spec" {
		root.Title = "Spillway spec"
	} else {
		root.Required = []string{"role"}
		root.Properties.nodes[0].Const = role // role is the first key of every config
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(root)
}

// newSectionSchema returns the schema of an object with these keys and no others.
func newSectionSchema(keys []configKey) *schemaNode {
	p := &schemaProperties{}
	for i := range keys {
		k := &keys[i]
		n := newValueSchema(k.typ, k.children)
		n.Description, n.Default = k.comment, schemaDefault(k)
		p.names, p.nodes = append(p.names, k.name()), append(p.nodes, n)
	}
	return &schemaNode{Type: "object", Properties: p, AdditionalProperties: false}
}

// newValueSchema returns the schema of a value. children are the keys of a section.
func newValueSchema(t reflect.Type, children []configKey) *schemaNode {
	switch typeName(t) {
	case "duration":
		return &schemaNode{Type: "string", Pattern: durationPattern}
	case "IP address":
		return &schemaNode{Type: "string"}
	case "class":
		return &schemaNode{Type: "string", Enum: classNames()}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return newValueSchema(t.Elem(), children)
	case reflect.Slice:
		return &schemaNode{Type: "array", Items: newValueSchema(t.Elem(), children)}
	case reflect.Map:
		return &schemaNode{Type: "object", AdditionalProperties: newValueSchema(t.Elem(), nil)}
	case reflect.Struct:
		return newSectionSchema(children)
	case reflect.Bool:
		return &schemaNode{Type: "boolean"}
	case reflect.String:
		return &schemaNode{Type: "string"}
	case reflect.Float64:
		return &schemaNode{Type: "number"}
	case reflect.Uint64:
		return &schemaNode{Type: "integer", Minimum: new(int)}
	}
	return &schemaNode{Type: "integer"}
}

func classNames() (names []string) {
	for _, c := range []spec.Class{spec.Interactive, spec.Standard, spec.Batch} {
		names = append(names, c.String())
	}
	return names
}

// schemaDefault returns a key's default as a JSON value, nil for none.
func schemaDefault(k *configKey) any {
	if k.def == "" {
		return nil
	}
	t := k.typ
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t.Kind() == reflect.Slice:
		list := strings.Split(k.def, ",")
		for i := range list {
			list[i] = strings.TrimSpace(list[i])
		}
		return list
	case typeName(t) == "duration" || typeName(t) == "class" || t.Kind() == reflect.String:
		return k.def
	}
	return json.RawMessage(k.def)
}
