package openai_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
)

func TestScan(t *testing.T) {
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
		{"smaller limit holds", `{"model":"m","max_tokens":10,"max_completion_tokens":5}`, openai.Envelope{Model: "m", N: 1, MaxTokens: 5}, ``},
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
			if err := openai.Scan([]byte(tc.body), &env); err != nil {
				t.Fatal(err)
			}
			if string(env.Prompt) != tc.prompt {
				t.Errorf("prompt is %s, want %s", env.Prompt, tc.prompt)
			}
			env.Prompt, env.ModelStart, env.ModelEnd = nil, 0, 0
			if got, want := show(env), show(tc.want); got != want {
				t.Errorf("envelope is\n%s, want\n%s", got, want)
			}
		})
	}
}

func show(e openai.Envelope) string {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestScanRefuses(t *testing.T) {
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
			err := openai.Scan([]byte(tc.body), &env)
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
		if openai.Scan(body, &env) != nil {
			t.Fatal("scan failed")
		}
	}); n != 0 {
		t.Fatalf("Scan allocates %v times, want 0", n)
	}
}

// withModel and withLimit are bodies with these written anew.
func withModel(body []byte, env *openai.Envelope, model string) []byte {
	w := openai.WordingOf(body)
	w.SetModel(env, model)
	return w.Bytes()
}

func withLimit(body []byte, n int) []byte {
	w := openai.WordingOf(body)
	w.SetLimit(openai.PathChat, n)
	return w.Bytes()
}

func TestWithModel(t *testing.T) {
	body := []byte(`{"n":1,"model" : "alias","prompt":"model"}`)
	var env openai.Envelope
	if err := openai.Scan(body, &env); err != nil {
		t.Fatal(err)
	}
	if got, want := string(withModel(body, &env, `big"one`)), `{"n":1,"model" : "big\"one","prompt":"model"}`; got != want {
		t.Fatalf("body is %s, want %s", got, want)
	}
	if got := withModel(body, &env, "alias"); &got[0] != &body[0] {
		t.Fatal("an unchanged body was copied")
	}
}

func TestTokens(t *testing.T) {
	e := openai.Envelope{PromptBytes: 10, PromptIDs: 2, Images: 1, ImageTokens: 85}
	if got, want := e.Tokens(4), 3+2+85; got != want {
		t.Fatalf("Tokens is %d, want %d", got, want)
	}
	if got := (&openai.Envelope{}).Tokens(0); got != 1 {
		t.Fatalf("an empty prompt has %d tokens, want 1", got)
	}
}

// FuzzScan holds that whatever encoding/json takes with a usable model, Scan takes with the same model, and that Scan
// never steps outside the body.
func FuzzScan(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","messages":[{"role":"user","content":"hé\n\\"}],"n":2}`, `{"model":"m","prompt":[1,2.5e3,-4]}`,
		`{"mod\u0065l":"x"}`, `{`, `{"a":{"b":[true,false,null]},"model":"z"}`, `{"model":"m","x":"\\\""}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var env openai.Envelope
		err := openai.Scan(body, &env)
		if err == nil {
			if env.ModelStart < 0 || env.ModelEnd > len(body) || env.ModelStart >= env.ModelEnd || body[env.ModelStart] != '"' {
				t.Fatalf("model at %d..%d of %q", env.ModelStart, env.ModelEnd, body)
			}
			withModel(body, &env, "other")
		}
		var ref struct {
			Model *string `json:"model"`
		}
		var members map[string]json.RawMessage
		if json.Unmarshal(body, &members) != nil || json.Unmarshal(body, &ref) != nil {
			return
		}
		raw, ok := members["model"]
		if err == nil && ok && json.Unmarshal(raw, &ref.Model) == nil && ref.Model != nil && *ref.Model != env.Model && json.Valid([]byte(env.Model)) {
			t.Fatalf("model is %q, encoding/json reads %q", env.Model, *ref.Model)
		}
		if e := new(openai.Error); err != nil && (!errors.As(err, &e) || e.Status != 400) {
			t.Fatalf("error is %v, want a 400", err)
		}
	})
}

func BenchmarkScan20KB(b *testing.B) {
	body := []byte(`{"model":"llama-8b","messages":[{"role":"user","content":"` + strings.Repeat("some words of a prompt ", 900) + `"}],"max_tokens":256,"stream":true}`)
	var env openai.Envelope
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := openai.Scan(body, &env); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzWithLimit: what was well-formed stays so, with the limit as its last member and everything else as it was.
func FuzzWithLimit(f *testing.F) {
	f.Add([]byte(`{"model":"m","max_tokens":null} `), 7)
	f.Add([]byte(`{"model":"m","metadata":{"a":"}"}}`), 1)
	f.Fuzz(func(t *testing.T, body []byte, n int) {
		var env, got openai.Envelope
		n = 1 + int(uint(n)%1_000_000)
		if !json.Valid(body) || openai.Scan(body, &env) != nil {
			return
		}
		out := withLimit(body, n)
		var last struct {
			MaxTokens int `json:"max_tokens"`
		}
		if err := json.Unmarshal(out, &last); err != nil || last.MaxTokens != n {
			t.Fatalf("%s: %v, limit %d", out, err, last.MaxTokens)
		}
		if env.MaxTokens == 0 && openai.Scan(out, &got) == nil && (got.Model != env.Model || got.PromptBytes != env.PromptBytes || got.MaxTokens != n) {
			t.Fatalf("%s: %+v, was %+v", out, got, env)
		}
	})
}
