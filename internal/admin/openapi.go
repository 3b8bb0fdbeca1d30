package admin

import (
	"net/http"
	"reflect"
	"strings"
	"time"
)

const pathOpenAPI = "/v1/openapi.json"

// jsonObject is a JSON object of the OpenAPI description.
type jsonObject = map[string]any

// describeAPI describes the API in OpenAPI 3.1, generated from the routes and the types of their bodies and answers.
func describeAPI(routes []apiRoute) jsonObject {
	d := schemaBuilder{schemas: jsonObject{}}
	paths := jsonObject{}
	for _, t := range routes {
		at, _ := paths[t.path].(jsonObject)
		if at == nil {
			at = jsonObject{}
			paths[t.path] = at
		}
		at[strings.ToLower(t.method)] = d.describeOperation(t)
	}
	d.schemaOf(reflect.TypeFor[envelope]())
	return jsonObject{
		"openapi": "3.1.0",
		"info":    jsonObject{"title": "Spillway admin API", "version": "1"},
		"paths":   paths,
		"components": jsonObject{
			"schemas": d.schemas,
			"securitySchemes": jsonObject{
				"certificate": jsonObject{"type": "mutualTLS"},
				"token":       jsonObject{"type": "http", "scheme": "bearer"},
			},
		},
		"security": []jsonObject{{"certificate": []string{}}, {"token": []string{}}},
	}
}

// schemaBuilder collects the schemas of types.
type schemaBuilder struct{ schemas jsonObject }

func (d *schemaBuilder) describeOperation(t apiRoute) jsonObject {
	responses := jsonObject{
		"200":     d.describeContent("the answer", t.out),
		"default": d.describeContent("an error, and what to do about it", envelope{}),
	}
	op := jsonObject{
		"summary":     t.summary,
		"description": "Needs the role " + t.minRole.String() + ".",
		"responses":   responses,
	}
	if t.method != http.MethodGet {
		responses["403"] = d.describeContent("the caller's role is not sufficient, or a browser sent a cross-site request", envelope{})
	}
	if t.in != nil {
		responses["415"] = d.describeContent("the Content-Type is not application/json", envelope{})
		op["requestBody"] = jsonObject{"required": true, "content": d.describeContent("", t.in)["content"]}
	}
	var params []jsonObject
	for _, name := range t.params {
		params = append(params, jsonObject{"name": name, "in": "query", "required": name != "reason" && !t.optional && name != paramLinearizable, "schema": jsonObject{"type": "string"}})
	}
	if params != nil {
		op["parameters"] = params
	}
	return op
}

func (d *schemaBuilder) describeContent(what string, v any) jsonObject {
	return jsonObject{"description": what, "content": jsonObject{"application/json": jsonObject{"schema": d.schemaOf(reflect.TypeOf(v))}}}
}

// schemaOf returns the schema of a type as encoding/json encodes it.
func (d *schemaBuilder) schemaOf(t reflect.Type) jsonObject {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return jsonObject{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[[]byte]():
		return jsonObject{"type": "string", "contentEncoding": "base64"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schemaOf(t.Elem())
	case reflect.Slice, reflect.Array:
		return jsonObject{"type": "array", "items": d.schemaOf(t.Elem())}
	case reflect.Map:
		return jsonObject{"type": "object", "additionalProperties": d.schemaOf(t.Elem())}
	case reflect.Struct:
		return d.structSchema(t)
	case reflect.Bool:
		return jsonObject{"type": "boolean"}
	case reflect.Float32, reflect.Float64:
		return jsonObject{"type": "number"}
	case reflect.String:
		return jsonObject{"type": "string"}
	case reflect.Interface:
		return jsonObject{}
	}
	return jsonObject{"type": "integer"}
}

// structSchema adds the schema of a struct to the components, once, and returns a reference to it.
func (d *schemaBuilder) structSchema(t reflect.Type) jsonObject {
	name := strings.ToUpper(t.Name()[:min(1, len(t.Name()))]) + t.Name()[min(1, len(t.Name())):]
	ref := jsonObject{"$ref": "#/components/schemas/" + name}
	if name == "" {
		ref = nil
	} else if _, done := d.schemas[name]; done {
		return ref
	}
	properties, required := jsonObject{}, []string{}
	out := jsonObject{"type": "object", "properties": properties}
	if ref != nil {
		d.schemas[name] = out // before its fields, because the type may be recursive
	}
	for _, f := range reflect.VisibleFields(t) {
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if key == "-" || !f.IsExported() || f.Anonymous {
			continue
		}
		if key == "" {
			key = f.Name
		}
		properties[key] = d.schemaOf(f.Type)
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

// serveDescription serves the OpenAPI description.
func serveDescription(routes []apiRoute) func(http.ResponseWriter, *http.Request, string) {
	d := describeAPI(routes)
	return func(w http.ResponseWriter, _ *http.Request, _ string) { writeAnswer(w, d, nil) }
}
