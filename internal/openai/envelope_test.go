package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spillway-lb/spillway/internal/openai"
)

func TestScanBody(t *testing.T) {
	for _, tc := range []struct {
		name, body string
		want       openai.Envelope
		prompt     string
	}{
		{
			"chat", `{"model":"llama-8b","messages":[{"role":"user","content":"hello"}],"max_tokens":256,"stream":true,"stream_options":{"include_usage":true}}`,
			openai.Envelope{Model: "llama-8b", MaxTokens: 256, Stream: true, IncludeUsage: true, N: 1, PromptBytes: len("user") + len("hello")},
			`[{"role":"user","content":"hello"}]`,
		},
		{"spaces and order", " {\n \"n\" : 3 , \"prompt\" : \"a\\\"b\" ,\t\"model\":\"m\" } \n", openai.Envelope{Model: "m", N: 3, PromptBytes: 4}, `"a\"b"`},
		{"token ids", `{"model":"m","prompt":[1,22,333]}`, openai.Envelope{Model: "m", N: 1, PromptIDs: 3}, `[1,22,333]`},
		{"key spelt with escapes", `{"mod\u0065l":"m","input":"x"}`, openai.Envelope{Model: "m", N: 1, PromptBytes: 1}, `"x"`},
		{"model spelt with escapes", `{"model":"a\u002fb"}`, openai.Envelope{Model: "a/b", N: 1}, ``},
		{"two limits that agree", `{"model":"m","max_tokens":5,"max_completion_tokens":5}`, openai.Envelope{Model: "m", N: 1, MaxTokens: 5}, ``},
		{"another path's limit", `{"model":"m","max_output_tokens":1}`, openai.Envelope{Model: "m", N: 1}, ``},
		{"nulls", `{"model":"m","max_tokens":null,"stream":null,"n":null,"user":"u"}`, openai.Envelope{Model: "m", N: 1, User: "u"}, ``},
		{
			"image", `{"model":"m","messages":[{"content":[{"image_url":{"url":"data:image/png;base64,AAAA"}}]}]}`,
			openai.Envelope{Model: "m", N: 1, Images: 1, ImageTokens: 85},
			`[{"content":[{"image_url":{"url":"data:image/png;base64,AAAA"}}]}]`,
		},
		{"tools are prompt", `{"model":"m","tools":[{"name":"abc"}]}`, openai.Envelope{Model: "m", N: 1, PromptBytes: 3}, ``},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var env openai.Envelope
			if err := openai.ScanChat([]byte(tc.body), &env); err != nil {
				t.Fatal(err)
			}
			if string(env.Prompt) != tc.prompt {
				t.Errorf("prompt is %s, want %s", env.Prompt, tc.prompt)
			}
			env.Prompt, env.ModelStart, env.ModelEnd = nil, 0, 0
			if got, want := envelopeJSON(env), envelopeJSON(tc.want); got != want {
				t.Errorf("envelope is\n%s, want\n%s", got, want)
			}
		})
	}
}

func envelopeJSON(e openai.Envelope) string {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestScanRejectsInvalidBodies(t *testing.T) {
	deep := strings.Repeat("[", 600) + strings.Repeat("]", 600)
	for _, tc := range []struct{ name, body, code string }{
		{"empty", ``, openai.CodeInvalidJSON},
		{"not an object", `[1]`, openai.CodeInvalidJSON},
		{"text", `hello`, openai.CodeInvalidJSON},
		{"cut", `{"model":"m","messages":[`, openai.CodeInvalidJSON},
		{"open string", `{"model":"m`, openai.CodeInvalidJSON},
		{"crossed brackets", `{"model":"m","messages":[{]}}`, openai.CodeInvalidJSON},
		{"trailing", `{"model":"m"}{"model":"n"}`, openai.CodeInvalidJSON},
		{"no comma", `{"model":"m" "n":1}`, openai.CodeInvalidJSON},
		{"trailing comma", `{"model":"m",}`, openai.CodeInvalidJSON},
		{"bare word", `{"model":"m","stream":yes}`, openai.CodeInvalidJSON},
		{"twice", `{"model":"cheap","model":"dear"}`, openai.CodeInvalidJSON},
		{"twice by escapes", `{"model":"cheap","mode\u006c":"dear"}`, openai.CodeInvalidJSON},
		{"too deep", `{"model":"m","messages":` + deep + `}`, openai.CodeInvalidJSON},
		{"no model", `{"messages":[]}`, openai.CodeModelRequired},
		{"empty model", `{"model":""}`, openai.CodeModelRequired},
		{"model number", `{"model":7}`, openai.CodeInvalidValue},
		{"negative limit", `{"model":"m","max_tokens":-1}`, openai.CodeInvalidValue},
		{"huge limit", `{"model":"m","max_tokens":99999999999999999999}`, openai.CodeInvalidValue},
		{"stream text", `{"model":"m","stream":"true"}`, openai.CodeInvalidValue},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := openai.Envelope{Model: "left over"}
			err := openai.ScanChat([]byte(tc.body), &env)
			var e *openai.Error
			if !errors.As(err, &e) || e.Code != tc.code || e.Status != 400 {
				t.Fatalf("error is %v, want 400 with code %s", err, tc.code)
			}
		})
	}
}

func TestScanAllocatesNothingForASteadyCaller(t *testing.T) {
	body := []byte(`{"model":"llama-8b","messages":[{"role":"user","content":"hello"}],"max_tokens":256,"stream":true}`)
	var env openai.Envelope
	if n := testing.AllocsPerRun(1000, func() {
		if openai.ScanChat(body, &env) != nil {
			t.Fatal("scan failed")
		}
	}); n != 0 {
		t.Fatalf("Scan allocates %v times, want 0", n)
	}
}

// bodyWithModel and bodyWithLimit return bodies with these values replaced.
func bodyWithModel(body []byte, env *openai.Envelope, model string) []byte {
	w := openai.NewEditedBody(body)
	w.SetModel(env, model)
	return w.Bytes()
}

func bodyWithLimit(shape openai.Shape, body []byte, n int) []byte {
	var env openai.Envelope
	if openai.ScanBody(shape, body, &env) != nil {
		return body
	}
	w := openai.NewEditedBody(body)
	w.SetOutputLimit(shape, &env, n)
	return w.Bytes()
}

func TestSetModel(t *testing.T) {
	body := []byte(`{"n":1,"model" : "alias","prompt":"model"}`)
	var env openai.Envelope
	if err := openai.ScanChat(body, &env); err != nil {
		t.Fatal(err)
	}
	if got, want := string(bodyWithModel(body, &env, `big"one`)), `{"n":1,"model" : "big\"one","prompt":"model"}`; got != want {
		t.Fatalf("body is %s, want %s", got, want)
	}
	if got := bodyWithModel(body, &env, "alias"); &got[0] != &body[0] {
		t.Fatal("an unchanged body was copied")
	}
}

func TestEstimateTokens(t *testing.T) {
	e := openai.Envelope{PromptBytes: 10, PromptIDs: 2, Images: 1, ImageTokens: 85}
	if got, want := e.EstimateTokens(4), 3+2+85; got != want {
		t.Fatalf("Tokens is %d, want %d", got, want)
	}
	if got := (&openai.Envelope{}).EstimateTokens(0); got != 1 {
		t.Fatalf("an empty prompt has %d tokens, want 1", got)
	}
}

// TestDuplicateMembersAreRefused: a duplicate member, with its name written in any way, is refused for all
// values.
func TestDuplicateMembersAreRefused(t *testing.T) {
	values := map[string]string{
		"model": `"m"`, "stream": "true", "stream_options": "null", "max_tokens": "5", "max_completion_tokens": "5", "max_output_tokens": "5",
		"n_predict": "5", "n": "1", "user": `"u"`, "messages": "[]", "prompt": `"p"`, "input": `"i"`, "instructions": `"i"`, "tools": "[]",
		"suffix": `"s"`, "system": `"s"`, "lora_path": "null",
	}
	native := map[string]string{
		"text": `"t"`, "text_input": `"t"`, "inputs": `"t"`, "query": `"q"`, "queries": "[]", "documents": "[]", "text_1": `"a"`, "text_2": `"b"`,
		"input_prefix": `"a"`, "input_suffix": `"b"`, "options": "{}", "sampling_params": "{}", "parameters": "{}",
	}
	check := func(shape openai.Shape, name, value string) {
		rest := `"model":"m",`
		if name == "model" {
			rest = ""
		}
		upper := strings.ToUpper(name[:1]) + name[1:]
		escaped := fmt.Sprintf(`\u%04x`, name[0]) + name[1:]
		for _, again := range []string{name, upper, escaped} {
			body := fmt.Sprintf(`{%s%q:%s,"%s":%s}`, rest, name, value, again, value)
			var env openai.Envelope
			var e *openai.Error
			if err := openai.ScanBody(shape, []byte(body), &env); !errors.As(err, &e) || e.Code != openai.CodeInvalidJSON && name != "options" && name != "parameters" && name != "sampling_params" {
				t.Errorf("%s is taken: %v", body, err)
			}
		}
		once := fmt.Sprintf(`{%s%q:%s}`, rest, name, value)
		var env openai.Envelope
		if err := openai.ScanBody(shape, []byte(once), &env); err != nil {
			t.Errorf("%s: %v", once, err)
		}
	}
	for name, value := range values {
		for _, shape := range []openai.Shape{openai.ShapeChat, openai.ShapeEmbeddings, openai.ShapeScore, openai.ShapeUnknown} {
			check(shape, name, value)
		}
	}
	for name, value := range native {
		for _, shape := range []openai.Shape{openai.ShapeScore, openai.ShapeOllama, openai.ShapeNative, openai.ShapeUnknown} {
			check(shape, name, value)
		}
	}
	for _, key := range []string{"MODEL", "Model", "\u212aeep", "me\u017f\u017fages", "\u017ftream", "max_to\u212aens", "MESSAGES"} {
		var env openai.Envelope
		body := `{"model":"large","` + key + `":"big"}`
		if err := openai.ScanChat([]byte(body), &env); (err == nil) == (key != "\u212aeep") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// goEnvelope is a request as decoded by an engine written in Go: names in any case, the last of several.
type goEnvelope struct {
	Model               string
	Stream              bool
	MaxTokens           json.RawMessage `json:"max_tokens"`
	MaxCompletionTokens json.RawMessage `json:"max_completion_tokens"`
	N                   json.RawMessage
	User                json.RawMessage
	Messages, Prompt    json.RawMessage
	Input               json.RawMessage
}

// FuzzScanBody: a body accepted by ScanBody means the same to an engine that decodes it into a Go struct,
// encoding/json accepts no model that ScanBody does not, and ScanBody never reads outside the body.
func FuzzScanBody(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hé\n\\"}],"n":2}`, `{"model":"m","prompt":[1,2.5e3,-4]}`,
		`{"mod\u0065l":"x"}`, `{`, `{"a":{"b":[true,false,null]},"model":"z"}`, `{"model":"m","x":"\\\""}`,
		`{"model":"large","MODEL":"small"}`, `{"model":"m","me\u017fsages":[1]}`, `{"model":"m","max_tokens":1,"Max_Tokens":7000}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var env openai.Envelope
		err := openai.ScanChat(body, &env)
		if e := new(openai.Error); err != nil && (!errors.As(err, &e) || e.Status != 400) {
			t.Fatalf("error is %v, want a 400", err)
		}
		if err != nil {
			return
		}
		if env.ModelStart < 0 || env.ModelEnd > len(body) || env.ModelStart >= env.ModelEnd || body[env.ModelStart] != '"' {
			t.Fatalf("model at %d..%d of %q", env.ModelStart, env.ModelEnd, body)
		}
		bodyWithModel(body, &env, "other")
		var engine goEnvelope
		if json.Unmarshal(body, &engine) != nil || !utf8.ValidString(env.Model) {
			return
		}
		if engine.Model != env.Model || engine.Stream != env.Stream {
			t.Fatalf("%s: we read %q %v, an engine %q %v", body, env.Model, env.Stream, engine.Model, engine.Stream)
		}
		limit := string(engine.MaxCompletionTokens)
		if limit == "" || limit == "null" || limit == "0" {
			limit = string(engine.MaxTokens)
		}
		if n, _ := strconv.Atoi(limit); n != env.MaxTokens {
			t.Fatalf("%s: the limit is %d, an engine reads %s", body, env.MaxTokens, limit)
		}
		for _, prompt := range []json.RawMessage{engine.Messages, engine.Prompt, engine.Input} {
			if len(prompt) > 0 && string(prompt) != "null" && len(env.Prompt) == 0 {
				t.Fatalf("%s: an engine reads the prompt %s", body, prompt)
			}
		}
	})
}

// TestOutputLimitsOfEachPath: each path has its own names, two different limits are refused, and a limit is
// inserted where the engine reads it.
func TestOutputLimitsOfEachPath(t *testing.T) {
	const differ = -1
	for _, tc := range []struct {
		shape openai.Shape
		body  string
		want  int    // the parsed limit
		with  string // with a limit of 50
	}{
		{openai.ShapeChat, `{"model":"m"}`, 0, `{"model":"m","max_tokens":50}`},
		{openai.ShapeChat, `{"model":"m","max_output_tokens":1}`, 0, `{"model":"m","max_output_tokens":1,"max_tokens":50}`},
		{openai.ShapeChat, `{"model":"m","max_tokens":1,"max_completion_tokens":7000}`, differ, ``},
		{openai.ShapeChat, `{"model":"m","max_tokens":7000,"max_completion_tokens":0}`, differ, ``},
		{openai.ShapeChat, `{"model":"m","max_tokens":7,"max_completion_tokens":null}`, 7, ``},
		{openai.ShapeChat, `{"model":"m","max_completion_tokens":null}`, 0, `{"model":"m","max_completion_tokens":50}`},
		{openai.ShapeChat, `{"model":"m","max_tokens":0}`, 0, `{"model":"m","max_tokens":50}`},
		{openai.ShapeChat, `{"model":"m","max_tokens":1,"n_predict":7000}`, differ, ``},
		{openai.ShapeCompletions, `{"model":"m","num_predict":9}`, 0, `{"model":"m","num_predict":9,"max_tokens":50}`},
		{openai.ShapeResponses, `{"model":"m","max_tokens":1}`, 0, `{"model":"m","max_tokens":1,"max_output_tokens":50}`},
		{openai.ShapeResponses, `{"model":"m","max_output_tokens":8}`, 8, ``},
		{openai.ShapeMessages, `{"model":"m","max_completion_tokens":1}`, 0, `{"model":"m","max_completion_tokens":1,"max_tokens":50}`},
		{openai.ShapeLlamaCPP, `{"prompt":"x","n_predict":-1}`, 0, `{"prompt":"x","n_predict":50}`},
		{openai.ShapeLlamaCPP, `{}`, 0, `{"n_predict":50}`},
		{openai.ShapeLlamaCPP, `{"max_tokens":3,"n_predict":4}`, differ, ``},
		{openai.ShapeOllama, `{"model":"m"}`, 0, `{"model":"m","options":{"num_predict":50}}`},
		{openai.ShapeOllama, `{"model":"m","options":{"seed":1}}`, 0, `{"model":"m","options":{"num_predict":50,"seed":1}}`},
		{openai.ShapeOllama, `{"model":"m","max_tokens":1,"options":{}}`, 0, `{"model":"m","max_tokens":1,"options":{"num_predict":50}}`},
		{openai.ShapeOllama, `{"model":"m","options":{"num_predict":-2}}`, 0, `{"model":"m","options":{"num_predict":50}}`},
		{openai.ShapeOllama, `{"model":"m","options":{"num_predict":12}}`, 12, ``},
		{openai.ShapeNative, `{"text":"a","sampling_params":{"max_new_tokens":12}}`, 12, ``},
		{openai.ShapeNative, `{"inputs":"a","parameters":{"max_new_tokens":12}}`, 12, ``},
		{openai.ShapeNative, `{"inputs":"a"}`, 0, `{"inputs":"a","sampling_params":{"max_new_tokens":50},"parameters":{"max_new_tokens":50}}`},
		{openai.ShapeNative, `{"text":"a","sampling_params":{},"parameters":{"max_new_tokens":1}}`, differ, ``},
		{openai.ShapeNative, `{"text":["a","b"],"sampling_params":[{"max_new_tokens":9},{}]}`, differ, ``},
		{openai.ShapeGenerate, `{"text_input":"a","max_tokens":9}`, 9, ``},
		{openai.ShapeGenerate, `{"text_input":"a","max_tokens":1,"parameters":{"max_tokens":900}}`, differ, ``},
		{openai.ShapeGenerate, `{"text_input":"a","parameters":{"lora_name":"x"}}`, differ, ``},
		{openai.ShapeNative, `{"inputs":"a","parameters":{"adapter_id":"x"}}`, differ, ``},
		{openai.ShapeChat, `{"model":"m","lora_path":"other"}`, differ, ``},
	} {
		var env openai.Envelope
		err := openai.ScanBody(tc.shape, []byte(tc.body), &env)
		if (err != nil) != (tc.want == differ) || err == nil && env.MaxTokens != tc.want {
			t.Errorf("%s: limit %d, %v, want %d", tc.body, env.MaxTokens, err, tc.want)
		}
		if tc.with == "" {
			continue
		}
		got := bodyWithLimit(tc.shape, []byte(tc.body), 50)
		var again openai.Envelope
		err = openai.ScanBody(tc.shape, got, &again)
		if strings.Contains(tc.with, "sampling_params") { // one name for each of the two engines with this path; only a worker receives it
			err, again.MaxTokens = nil, 50
		}
		if string(got) != tc.with || err != nil || again.MaxTokens != 50 {
			t.Errorf("%s becomes %s (%d, %v), want %s", tc.body, got, again.MaxTokens, err, tc.with)
		}
	}
	for body, exceeds := range map[string]bool{`{"model":"m","n_predict":51}`: true, `{"model":"m","n_predict":-1}`: true, `{"model":"m","n_predict":50}`: false, `{"model":"m","max_tokens":51}`: true, `{"model":"m"}`: false} {
		var env openai.Envelope
		requireNoError(t, openai.ScanChat([]byte(body), &env))
		if _, got := env.ExceedsOutputLimit(50); got != exceeds {
			t.Errorf("%s exceeds 50: %v", body, got)
		}
		if _, got := env.ExceedsOutputLimit(0); got {
			t.Errorf("%s exceeds no limit", body)
		}
	}
}

func requireNoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func BenchmarkScan20KB(b *testing.B) {
	body := []byte(`{"model":"llama-8b","messages":[{"role":"user","content":"` + strings.Repeat("some words of a prompt ", 900) + `"}],"max_tokens":256,"stream":true}`)
	var env openai.Envelope
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := openai.ScanChat(body, &env); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzSetOutputLimit: a well-formed body stays so, with the limit that an engine applies and everything else
// unchanged.
func FuzzSetOutputLimit(f *testing.F) {
	f.Add([]byte(`{"model":"m","max_tokens":null} `), 7)
	f.Add([]byte(`{"model":"m","metadata":{"a":"}"}}`), 1)
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		var env, got openai.Envelope
		n = 1 + int(uint(n)%1_000_000)
		if !json.Valid(body) || openai.ScanChat(body, &env) != nil {
			return
		}
		out := bodyWithLimit(openai.ShapeChat, body, n)
		var last struct {
			MaxTokens           *int `json:"max_tokens"`
			MaxCompletionTokens *int `json:"max_completion_tokens"`
		}
		if err := json.Unmarshal(out, &last); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		// An engine uses max_completion_tokens or max_tokens, the one that is neither null nor 0.
		one := last.MaxCompletionTokens
		if one == nil || *one == 0 {
			one = last.MaxTokens
		}
		if env.MaxTokens == 0 && (one == nil || *one != n) {
			t.Fatalf("%s: the limit is not %d", out, n)
		}
		if env.MaxTokens == 0 && env.ForeignLimit == 0 && openai.ScanChat(out, &got) == nil && (got.Model != env.Model || got.PromptBytes != env.PromptBytes || got.MaxTokens != n) {
			t.Fatalf("%s: %+v, was %+v", out, got, env)
		}
	})
}

func TestModelFromPath(t *testing.T) {
	for path, want := range map[string]string{
		"/v2/models/resnet/infer": "resnet", "/v2/models/org%2Fbge/infer": "org/bge", "/v2/models/resnet/versions/3/infer": "resnet",
	} {
		if got, ok := openai.ModelFromPath(path); !ok || got != want {
			t.Errorf("%s names %q, %v", path, got, ok)
		}
	}
	for _, path := range []string{"/v2/models//infer", "/v2/models/a", "/v2/models/a/ready", "/v2/models/a/versions/infer", "/v2/models/a/versions/1/2/infer", "/v1/models/a/infer", "/v2/models/a%zz/infer", ""} {
		if got, ok := openai.ModelFromPath(path); ok {
			t.Errorf("%s names %q", path, got)
		}
	}
	if got := openai.ReplacePathModel("/v2/models/fast/versions/3/infer", "org/bge"); got != "/v2/models/org%2Fbge/versions/3/infer" {
		t.Errorf("path is %s", got)
	}
}
