package admin

import (
	"net/http"
	"reflect"
	"strings"
	"time"
)

const pathOpenAPI = "/v1/openapi.json"

// object is a JSON object of the description.
type object = map[string]any

// describe is the API in OpenAPI 3.1, made of the routes themselves and of the types that they take and answer.
func describe(routes []route) object {
	d := describer{schemas: object{}}
	paths := object{}
	for _, t := range routes {
		at, _ := paths[t.path].(object)
		if at == nil {
			at = object{}
			paths[t.path] = at
		}
		at[strings.ToLower(t.method)] = d.operation(t)
	}
	d.schema(reflect.TypeFor[envelope]())
	return object{
		"openapi": "3.1.0",
		"info":    object{"title": "Spillway's admin interface", "version": "1"},
		"paths":   paths,
		"components": object{
			"schemas": d.schemas,
			"securitySchemes": object{
				"certificate": object{"type": "mutualTLS"},
				"token":       object{"type": "http", "scheme": "bearer"},
			},
		},
		"security": []object{{"certificate": []string{}}, {"token": []string{}}},
	}
}

// describer collects the schemas of the types it meets.
type describer struct{ schemas object }

func (d *describer) operation(t route) object {
	responses := object{
		"200":     d.content("what was asked for", t.out),
		"default": d.content("a refusal, and what to do about it", envelope{}),
	}
	op := object{
		"summary":     t.summary,
		"description": "Needs the role " + t.needs.String() + ".",
		"responses":   responses,
	}
	if t.method != http.MethodGet {
		responses["403"] = d.content("the caller's role does not suffice, or a browser sent the request for a page of another site", envelope{})
	}
	if t.in != nil {
		responses["415"] = d.content("the body was not declared as application/json", envelope{})
		op["requestBody"] = object{"required": true, "content": d.content("", t.in)["content"]}
	}
	var params []object
	for _, name := range t.params {
		params = append(params, object{"name": name, "in": "query", "required": name != "reason" && !t.optional && name != paramLinearizable, "schema": object{"type": "string"}})
	}
	if params != nil {
		op["parameters"] = params
	}
	return op
}

func (d *describer) content(what string, v any) object {
	return object{"description": what, "content": object{"application/json": object{"schema": d.schema(reflect.TypeOf(v))}}}
}

// schema describes a type as encoding/json writes it.
func (d *describer) schema(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem())
	case reflect.Slice, reflect.Array:
		return object{"type": "array", "items": d.schema(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": d.schema(t.Elem())}
	case reflect.Struct:
		return d.structure(t)
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Interface:
		return object{}
	}
	return object{"type": "integer"}
}

// structure describes a struct once and refers to it from then on.
func (d *describer) structure(t reflect.Type) object {
	name := strings.ToUpper(t.Name()[:min(1, len(t.Name()))]) + t.Name()[min(1, len(t.Name())):]
	ref := object{"$ref": "#/components/schemas/" + name}
	if name == "" {
		ref = nil
	} else if _, done := d.schemas[name]; done {
		return ref
	}
	properties, required := object{}, []string{}
	out := object{"type": "object", "properties": properties}
	if ref != nil {
		d.schemas[name] = out // before its fields: it may hold itself
	}
	for _, f := range reflect.VisibleFields(t) {
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "-" || !f.IsExported() || f.Anonymous {
			continue
		}
		if key == "" {
			key = f.Name
		}
		properties[key] = d.schema(f.Type)
		if !strings.Contains(options, "omit") {
			required = append(required, key)
		}
	}
	if len(required) > 0 {
		out["required"] = required
	}
	if ref == nil {
		return out
	}
	return ref
}

// serveDescription answers with the description.
func serveDescription(routes []route) func(http.ResponseWriter, *http.Request, string) {
	d := describe(routes)
	return func(w http.ResponseWriter, _ *http.Request, _ string) { answer(w, d, nil) }
}
