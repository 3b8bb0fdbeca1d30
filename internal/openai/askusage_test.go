package openai_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
)

// bodyWithUsage returns a body that asks for usage, and stores its envelope in env.
func bodyWithUsage(t *testing.T, body []byte, env *openai.Envelope) []byte {
	t.Helper()
	w := openai.NewEditedBody(body)
	w.RequestUsage(env)
	out := w.Bytes()
	if err := openai.ScanChat(out, env); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	return out
}

func TestRequestUsage(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{`{"model":"m","stream":true}`, `{"stream_options":{"include_usage":true},"model":"m","stream":true}`},
		{` {"stream":true,"model":"m","stream_options":null}`, ` {"stream":true,"model":"m","stream_options":{"include_usage":true}}`},
		{`{"stream":true,"stream_options":{},"model":"m"}`, `{"stream":true,"stream_options":{"include_usage":true},"model":"m"}`},
		{`{"stream":true,"stream_options":{ "a":[1] },"model":"m"}`, `{"stream":true,"stream_options":{"include_usage":true, "a":[1] },"model":"m"}`},
		{`{"stream":true,"stream_options":{"a":1,"include_usage" : false},"model":"m"}`, `{"stream":true,"stream_options":{"a":1,"include_usage" : true},"model":"m"}`},
		{`{"stream":true,"stream_options":{"include_usage":null},"model":"m"}`, `{"stream":true,"stream_options":{"include_usage":true},"model":"m"}`},
		{`{"stream":true,"stream_options":{"continuous_usage_stats":false},"model":"m"}`, `{"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":false},"model":"m"}`},
	} {
		var env openai.Envelope
		if err := openai.ScanChat([]byte(tc.in), &env); err != nil {
			t.Fatal(err)
		}
		if !env.MayRequestUsage() {
			t.Errorf("%s: may not ask", tc.in)
			continue
		}
		got := bodyWithUsage(t, []byte(tc.in), &env)
		if string(got) != tc.want {
			t.Errorf("%s: got %s, want %s", tc.in, got, tc.want)
		}
		if raw := string(got[env.ModelStart:env.ModelEnd]); raw != `"m"` {
			t.Errorf("%s: the model is taken to be %s", tc.in, raw)
		}
	}
}

func TestUsageIsNotRequestedWhereAmbiguous(t *testing.T) {
	for _, in := range []string{
		`{"model":"m"}`,
		`{"model":"m","stream":false}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":true}}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":1}}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":"yes"}}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":false,"include_usage":true}}`,
		`{"model":"m","stream":true,"stream_options":{"include_usage":false,"include_\u0075sage":false}}`,
		`{"model":"m","stream":true,"stream_options":{"continuous_usage_stats":true}}`,
		`{"model":"m","stream":true,"stream_options":7}`,
		`{"model":"m","stream":true,"stream_options":[]}`,
	} {
		var env openai.Envelope
		if err := openai.ScanChat([]byte(in), &env); err != nil {
			t.Fatal(err)
		}
		if env.MayRequestUsage() {
			t.Errorf("%s: would be asked", in)
		}
	}
}

// For a full decoder, the body differs from the original only by include_usage.
func FuzzRequestUsage(f *testing.F) {
	f.Add([]byte(`{"model":"m","stream":true}`))
	f.Add([]byte(`{"stream":true,"stream_options":{"a":1,"include_usage":false},"model":"m"}`))
	f.Add([]byte(`{"stream":true,"stream_options":null,"model":"m"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var env openai.Envelope
		if openai.ScanChat(body, &env) != nil || !env.MayRequestUsage() {
			return
		}
		model := string(body[env.ModelStart:env.ModelEnd])
		got := bodyWithUsage(t, body, &env)
		if string(got[env.ModelStart:env.ModelEnd]) != model {
			t.Fatalf("the model moved in %q", got)
		}
		var after openai.Envelope
		if err := openai.ScanChat(got, &after); err != nil || !after.IncludeUsage {
			t.Fatalf("%q became %q: %v", body, got, err)
		}
		var a, b map[string]any
		if json.Unmarshal(body, &a) != nil {
			return // the scan checks the structure only
		}
		if err := json.Unmarshal(got, &b); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		options, _ := a["stream_options"].(map[string]any)
		if options == nil {
			options = map[string]any{}
		}
		options["include_usage"] = true
		a["stream_options"] = options
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("%q became %q", body, got)
		}
	})
}
