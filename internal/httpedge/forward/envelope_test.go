package forward_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
)

func TestModelFromHeadersAndQuery(t *testing.T) {
	for query, want := range map[string]string{
		"": "m", "?model=m": "m", "?a=b&model=m&model=m": "m", "?model=other": "-", "?model=m&model=other": "-", "?MODEL=m": "-", "?Model=other": "-",
		"?a=1;model=other": "-", "?%6dodel=other;": "-", "?x=%zz": "m", "?api-version=1;2": "m",
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions"+query, nil)
		r.Header.Set("X-Model", "m")
		got, e := forward.ModelFromHeaders(r)
		if (e != nil) != (want == "-") || e == nil && got != want {
			t.Errorf("%s names %q (%v), want %s", query, got, e, want)
		}
	}
	if got := forward.ReplaceQueryModel("a=b&model=best", "small"); got != "a=b&model=small" {
		t.Error(got)
	}
	if got := forward.ReplaceQueryModel("x=%zz;", "small"); got != "x=%zz;" {
		t.Error(got)
	}
}

func TestReadEnvelope(t *testing.T) {
	for name, tc := range map[string]struct {
		shape                    openai.Shape
		path, body, kind, header string
		model                    string // empty: refused
		tokens                   int
	}{
		"a chat":                   {openai.ShapeChat, "/v1/chat/completions", `{"model":"m","messages":["12345678"]}`, "", "", "m", 2},
		"a chat, and a header":     {openai.ShapeChat, "/v1/chat/completions", `{"model":"m"}`, "", "m", "m", 1},
		"a chat, another header":   {openai.ShapeChat, "/v1/chat/completions", `{"model":"m"}`, "", "x", "", 0},
		"a chat without a model":   {openai.ShapeChat, "/v1/chat/completions", `{}`, "", "m", "", 0},
		"a chat in a form":         {openai.ShapeChat, "/v1/chat/completions", `{"model":"m"}`, "multipart/form-data; boundary=b", "", "", 0},
		"a reranker":               {openai.ShapeScore, "/v1/rerank", `{"model":"m","query":"1234","documents":["1234","5678"]}`, "", "", "m", 3},
		"tokens counted":           {openai.ShapeCount, "/tokenize", `{"model":"m","prompt":"a long prompt of many words"}`, "", "", "m", 1},
		"Triton's":                 {openai.ShapeGenerate, "/v2/models/m/generate", `{"text_input":"1234"}`, "", "", "m", 1},
		"Triton's, another body":   {openai.ShapeGenerate, "/v2/models/m/generate", `{"text_input":"1234","model":"x"}`, "", "", "", 0},
		"Triton's, another header": {openai.ShapeInfer, "/v2/models/m/infer", `tensors`, "", "x", "", 0},
		"SGLang's":                 {openai.ShapeNative, "/generate", `{"text":"12345678"}`, "", "m", "m", 2},
		"SGLang's, no model":       {openai.ShapeNative, "/generate", `{"text":"12345678"}`, "", "", "", 0},
	} {
		r := httptest.NewRequest(http.MethodPost, tc.path, strings.NewReader(tc.body))
		if tc.kind != "" {
			r.Header.Set("Content-Type", tc.kind)
		}
		if tc.header != "" {
			r.Header.Set("X-Model", tc.header)
		}
		var env openai.Envelope
		e := forward.ReadEnvelope(tc.shape, r, []byte(tc.body), &env)
		if (e != nil) != (tc.model == "") || e == nil && (env.Model != tc.model || env.EstimateTokens(4) != tc.tokens) {
			t.Errorf("%s: %q, %d tokens (%v)", name, env.Model, env.EstimateTokens(4), e)
		}
	}
}
