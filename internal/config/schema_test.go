package config_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/spillway-lb/spillway/internal/config"
)

func readSchema(t *testing.T, kind string) map[string]any {
	t.Helper()
	var b bytes.Buffer
	if err := config.WriteSchema(&b, kind); err != nil {
		t.Fatal(err)
	}
	schema := map[string]any{}
	if err := json.Unmarshal(b.Bytes(), &schema); err != nil {
		t.Fatalf("schema of %s: %v", kind, err)
	}
	return schema
}

// checkSchema lists how a value violates a schema. It supports the keywords that WriteSchema uses and reports others.
func checkSchema(schema map[string]any, v any, path string) (problems []string) {
	add := func(format string, args ...any) {
		problems = append(problems, path+": "+fmt.Sprintf(format, args...))
	}
	for _, keyword := range slices.Sorted(maps.Keys(schema)) {
		want := schema[keyword]
		switch keyword {
		case "$schema", "title", "description", "default":
		case "type":
			if got := jsonType(v); got != want && !(got == "integer" && want == "number") {
				add("%v is of type %s, not %s", v, got, want)
			}
		case "const":
			if v != want {
				add("%v is not %v", v, want)
			}
		case "enum":
			if !slices.Contains(want.([]any), v) {
				add("%v is none of %v", v, want)
			}
		case "pattern":
			if s, ok := v.(string); ok && !regexp.MustCompile(want.(string)).MatchString(s) {
				add("%q does not match %s", s, want)
			}
		case "minimum":
			if n, ok := v.(float64); ok && n < want.(float64) {
				add("%v is less than %v", n, want)
			}
		case "required":
			for _, name := range want.([]any) {
				if object, ok := v.(map[string]any); ok && object[name.(string)] == nil {
					add("%s is missing", name)
				}
			}
		case "items":
			list, _ := v.([]any)
			for i, item := range list {
				problems = append(problems, checkSchema(want.(map[string]any), item, fmt.Sprintf("%s[%d]", path, i))...)
			}
		case "properties", "additionalProperties":
		default:
			add("the check does not support the keyword %s", keyword)
		}
	}
	object, _ := v.(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(object)) {
		if s, ok := properties[name].(map[string]any); ok {
			problems = append(problems, checkSchema(s, object[name], path+"."+name)...)
		} else if s, ok := schema["additionalProperties"].(map[string]any); ok {
			problems = append(problems, checkSchema(s, object[name], path+"."+name)...)
		} else if schema["additionalProperties"] == false {
			add("unknown key %s", name)
		}
	}
	return problems
}

// jsonType returns the JSON Schema type of a value.
func jsonType(v any) string {
	switch n := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case string:
		return "string"
	case float64:
		if n == math.Trunc(n) {
			return "integer"
		}
		return "number"
	case []any:
		return "array"
	}
	return "object"
}

// readYAML reads a YAML text as the values that encoding/json uses.
func readYAML(t *testing.T, text []byte) any {
	t.Helper()
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(asJSON, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestExamplesMatchTheirSchema(t *testing.T) {
	for _, kind := range append(config.RoleNames(), "spec") {
		schema := readSchema(t, kind)
		if got := schema["$schema"]; got != "https://json-schema.org/draft/2020-12/schema" {
			t.Errorf("%s: $schema is %v", kind, got)
		}
		var example bytes.Buffer
		if err := config.WriteExample(&example, kind); err != nil {
			t.Fatal(err)
		}
		texts := map[string][]byte{"example": example.Bytes()}
		files, _ := filepath.Glob("testdata/" + kind + ".yaml")
		if kind == "spec" {
			files, _ = filepath.Glob("../spec/testdata/*.yaml")
		}
		if len(files) == 0 {
			t.Fatalf("%s: no file in testdata", kind)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = text
		}
		for name, text := range texts {
			for _, problem := range checkSchema(schema, readYAML(t, text), "$") {
				t.Errorf("%s: %s: %s", kind, name, problem)
			}
		}
	}
}

func TestSchemaRefusesMistakes(t *testing.T) {
	for _, c := range []struct{ kind, text, want string }{
		{"worker", "name: w1", "$: role is missing"},
		{"worker", "role: local", "$.role: local is not worker"},
		{"worker", "role: worker\nlisen: x", "$: unknown key lisen"},
		{"worker", "role: worker\nspeed: fast", "$.speed: fast is of type string, not number"},
		{"worker", "role: worker\ntp: 1.5", "$.tp: 1.5 is of type number, not integer"},
		{"worker", "role: worker\nseed: -1", "$.seed: -1 is less than 0"},
		{"worker", "role: worker\ncold_start: 20", "$.cold_start: 20 is of type integer, not string"},
		{"worker", "role: worker\ncold_start: soon", `$.cold_start: "soon" does not match`},
		{"local", "role: local\nworkers: [{name: w1, gqu: H100}]", "$.workers[0]: unknown key gqu"},
		{"local", "role: local\nworkers: [{labels: {rack: 7}}]", "$.workers[0].labels.rack: 7 is of type integer, not string"},
		{"spec", "tenants: [{name: acme, class: urgent}]", "$.tenants[0].class: urgent is none of"},
	} {
		problems := checkSchema(readSchema(t, c.kind), readYAML(t, []byte(c.text)), "$")
		if len(problems) != 1 || !strings.HasPrefix(problems[0], c.want) {
			t.Errorf("%q: %q, want %q", c.text, problems, c.want)
		}
	}
	if err := config.WriteSchema(&bytes.Buffer{}, "globl"); err == nil || !strings.Contains(err.Error(), `did you mean "global"?`) {
		t.Errorf("schema of an unknown role: %v", err)
	}
}

// TestSchemaHasTheKeysOfDescribe compares keys, defaults and descriptions of the schema with `config describe`.
func TestSchemaHasTheKeysOfDescribe(t *testing.T) {
	for _, kind := range append(config.RoleNames(), "spec") {
		var described bytes.Buffer
		if err := config.DescribeConfig(&described, kind); err != nil {
			t.Fatal(err)
		}
		defaults, comments := map[string]string{}, map[string]string{}
		path := ""
		for line := range strings.Lines(described.String()) {
			if comment, ok := strings.CutPrefix(line, "    "); ok {
				comments[path] = strings.TrimSpace(comment)
				continue
			}
			path, line, _ = strings.Cut(strings.TrimSuffix(line, ")\n"), "  (")
			_, defaults[path], _ = strings.Cut(line, ", default ")
		}
		inSchema := map[string]bool{}
		var walk func(schema map[string]any, prefix string)
		walk = func(schema map[string]any, prefix string) {
			properties, _ := schema["properties"].(map[string]any)
			for name, p := range properties {
				p := p.(map[string]any)
				path := prefix + name
				inSchema[path] = true
				def := ""
				switch d := p["default"].(type) {
				case nil:
				case []any:
					def = strings.Trim(fmt.Sprint(d), "[]")
				case float64:
					text, _ := json.Marshal(d)
					def = string(text)
				default:
					def = fmt.Sprint(d)
				}
				if def != defaults[path] || comments[path] != fmt.Sprint(p["description"]) {
					t.Errorf("%s: %s has default %q and description %q in the schema, %q and %q in describe", kind, path, def, p["description"], defaults[path], comments[path])
				}
				walk(p, path+".")
				if items, ok := p["items"].(map[string]any); ok {
					walk(items, path+"[].")
				}
			}
		}
		walk(readSchema(t, kind), "")
		if len(inSchema) != len(comments) || len(comments) < 5 {
			t.Errorf("%s: the schema has %d keys, describe %d", kind, len(inSchema), len(comments))
		}
	}
}

// TestDescribeOneKey: a key is found by its path with or without brackets, in one role or in all of them.
func TestDescribeOneKey(t *testing.T) {
	describe := func(f func(*bytes.Buffer) error) string {
		var b bytes.Buffer
		if err := f(&b); err != nil {
			return "error: " + err.Error()
		}
		return b.String()
	}
	for _, c := range []struct{ kind, path, want string }{
		{"local", "body_memory", "body_memory  (whole number, default 1073741824)\n    body_memory bounds"},
		{"local", "workers.gpu", "workers[].gpu  (text"},
		{"local", "workers[0].gpu", "workers[].gpu  (text"},
		{"global", "raft", "raft  (section)\n    raft configures the cluster of the global nodes.\nraft.listen  ("},
		{"local", "gpu", `error: local has no key "gpu" (did you mean "workers[].gpu"?)`},
		{"local", "worker", `error: local has no key "worker" (did you mean "workers"?)`},
		{"glbal", "raft", `error: unknown role "glbal"`},
	} {
		if got := describe(func(b *bytes.Buffer) error { return config.DescribeKey(b, c.kind, c.path) }); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s %s: %q, want %q", c.kind, c.path, got, c.want)
		}
	}
	for path, want := range map[string]string{
		"limits.body_memory": "# regional\nlimits.body_memory  (whole number",
		"raft.heartbeat":     "# global\nraft.heartbeat  (duration, default 1s)",
		"glbal":              `error: "glbal" is neither a role (global, regional, local, worker, spec) nor a key of one (did you mean "global"?)`,
	} {
		if got := describe(func(b *bytes.Buffer) error { return config.FindKey(b, path) }); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if got := describe(func(b *bytes.Buffer) error { return config.FindKey(b, "body_memory") }); strings.Contains(got, "# regional") || !strings.Contains(got, "# local\nbody_memory") {
		t.Errorf("body_memory: %q", got)
	}
}
