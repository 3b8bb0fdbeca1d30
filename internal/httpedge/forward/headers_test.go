package forward_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/spec"
)

func TestInferenceHeaders(t *testing.T) {
	s := &spec.Spec{Routing: spec.Routing{Objectives: []spec.ClassObjective{{Name: "premium-traffic", Class: spec.Interactive}}}}
	for _, tc := range []struct {
		header, value string
		class         spec.Class
		named, wrong  bool
	}{
		{"X-Gateway-Inference-Objective", "premium-traffic", spec.Interactive, true, false},
		{"X-Llm-D-Inference-Objective", "batch", spec.Batch, true, false},
		{"X-Llm-D-Inference-Objective", "sheddable", spec.Standard, false, false},
		{"X-Spillway-Class", "premium-traffic", spec.Standard, false, true},
		{"X-Spillway-Class", "batch", spec.Batch, true, false},
		{"X-Other", "batch", spec.Standard, false, false},
	} {
		c, named, err := forward.RequestedClass(http.Header{tc.header: {tc.value}}, s)
		if named != tc.named || (err != nil) != tc.wrong || c != tc.class {
			t.Errorf("%s: %s is %v, %v, %v", tc.header, tc.value, c, named, err)
		}
	}
	for id, want := range map[string]string{"user-7": "user-7", "": "", "a b": "", "é": "", strings.Repeat("x", 129): ""} {
		h := http.Header{"X-Llm-D-Inference-Fairness-Id": {id}}
		if got := forward.FairnessFlow(h, &spec.Tenant{Trusted: true}); got != want {
			t.Errorf("%q is the flow %q", id, got)
		}
		if got := forward.FairnessFlow(h, &spec.Tenant{}) + forward.FairnessFlow(h, nil); got != "" {
			t.Errorf("somebody who is not trusted has the flow %q", got)
		}
	}
	h := http.Header{"X-Gateway-Model-Name-Rewrite": {"small"}, "X-Llm-D-Model-Name-Rewrite": {"large"}}
	if got := forward.TakeModelRewrite(h); got != "small" || len(h) != 0 {
		t.Errorf("%q is asked for, and %v goes on", got, h)
	}
	out := http.Header{forward.HeaderServedEndpoint: {"10.9.9.9:1"}}
	forward.SetServedEndpoint(out, false, "http://10.0.0.1:8000/x")
	if len(out) != 0 {
		t.Errorf("told %v", out)
	}
	if forward.SetServedEndpoint(out, true, "http://10.0.0.1:8000/x"); out.Get(forward.HeaderServedEndpoint) != "10.0.0.1:8000" {
		t.Errorf("told %v", out)
	}
}

func TestReadSLO(t *testing.T) {
	for _, tc := range []struct {
		name string
		h    map[string]string
		want forward.RequestSLO
	}{
		{"nothing", nil, forward.RequestSLO{}},
		{"our deadline", map[string]string{"x-spillway-deadline-ms": "1500"}, forward.RequestSLO{Deadline: 1500 * time.Millisecond}},
		{"a timeout", map[string]string{"x-request-timeout-ms": "1500"}, forward.RequestSLO{Deadline: 1500 * time.Millisecond}},
		{"the sooner of both", map[string]string{"x-spillway-deadline-ms": "900", "x-request-timeout-ms": "1500"}, forward.RequestSLO{Deadline: 900 * time.Millisecond}},
		{"a first token", map[string]string{"x-slo-ttft-ms": "300"}, forward.RequestSLO{TTFT: 300 * time.Millisecond}},
		{"as llm-d writes it", map[string]string{"x-llm-d-slo-ttft-ms": "200", "x-slo-ttft-ms": "300"}, forward.RequestSLO{TTFT: 200 * time.Millisecond}},
		{"the tokens after it", map[string]string{"x-slo-tpot-ms": "50", "x-slo-ttft-ms": "300"}, forward.RequestSLO{TTFT: 300 * time.Millisecond, TPOT: 50 * time.Millisecond}},
		{"the closer of both", map[string]string{"x-slo-tpot-ms": "50", "x-llm-d-slo-tpot-ms": "40"}, forward.RequestSLO{TPOT: 40 * time.Millisecond}},
		{"longer than a day", map[string]string{"x-request-timeout-ms": "2147483647"}, forward.RequestSLO{Deadline: 24 * time.Hour}},
	} {
		h := http.Header{}
		for k, v := range tc.h {
			h.Set(k, v)
		}
		if got, e := forward.ReadSLO(h); e != nil || got != tc.want {
			t.Errorf("%s: %+v (%v), want %+v", tc.name, got, e, tc.want)
		}
	}
}

func TestReadSLOErrorsSayWhatToWrite(t *testing.T) {
	for _, name := range []string{forward.HeaderClientDeadline, forward.HeaderRequestTimeout, forward.HeaderSLOTTFT, forward.HeaderLLMDSLOTTFT, forward.HeaderSLOTPOT, forward.HeaderLLMDSLOTPOT} {
		for _, v := range []string{"", "0", "-1", "1.5", "5s", "soon", "1e3", " 7", "4294967296", strings.Repeat("9", 1000)} {
			h := http.Header{}
			h.Set(name, v)
			_, e := forward.ReadSLO(h)
			if e == nil || e.Status != 400 || e.Code != openai.CodeInvalidValue || e.Param != name || !strings.Contains(e.Message, "whole milliseconds") {
				t.Errorf("%s: %.20q: %+v", name, v, e)
			}
		}
	}
}

func FuzzReadSLO(f *testing.F) {
	f.Add("100", "7", "", "x")
	f.Add("2147483647", "1", "00012", "+3")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		h := http.Header{forward.HeaderClientDeadline: {a}, forward.HeaderRequestTimeout: {b}, forward.HeaderSLOTTFT: {c}, forward.HeaderLLMDSLOTTFT: {d}, forward.HeaderSLOTPOT: {d}, forward.HeaderLLMDSLOTPOT: {a}}
		times, e := forward.ReadSLO(h)
		if e != nil {
			return
		}
		least := func(x, y string) time.Duration {
			m, _ := strconv.Atoi(x)
			n, _ := strconv.Atoi(y)
			return min(time.Duration(min(m, n))*time.Millisecond, 24*time.Hour)
		}
		if times.Deadline != least(a, b) || times.TTFT != least(c, d) || times.TPOT != least(a, d) || times.Deadline <= 0 || times.TTFT <= 0 {
			t.Fatalf("%q %q %q %q are %+v", a, b, c, d, times)
		}
	})
}

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
