package openai_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/openai"
)

func TestErrorShape(t *testing.T) {
	e := openai.ModelNotFound("no\"such\n", []string{"a", "b"})
	var got struct {
		Error struct {
			Message, Type, Code string
			Param               *string
		}
	}
	if err := json.Unmarshal(e.JSON(), &got); err != nil {
		t.Fatal(err)
	}
	if e.Status != 404 || got.Error.Code != "model_not_found" || got.Error.Param == nil || *got.Error.Param != "model" ||
		!strings.Contains(got.Error.Message, "a, b") || got.Error.Type != "invalid_request_error" {
		t.Fatalf("error is %+v", got)
	}
	if ev := string(e.StreamEvent()); !strings.HasPrefix(ev, `data: {"error":`) || !strings.HasSuffix(ev, "}\n\n") || strings.Count(ev, "\n") != 2 {
		t.Fatalf("event is %q", ev)
	}
	if got := openai.ModelNotFound(strings.Repeat("x", 1<<20), nil); len(got.Message) > 300 {
		t.Fatalf("the message repeats %d bytes of the caller's", len(got.Message))
	}
}

func TestRetryAfterIsClamped(t *testing.T) {
	for in, want := range map[time.Duration]time.Duration{
		0: 0, time.Millisecond: time.Second, 7 * time.Second: 7 * time.Second, time.Hour: 2 * time.Minute,
	} {
		if got := (&openai.Error{RetryAfter: in}).ClampedRetryAfter(); got != want {
			t.Errorf("Retry of %v is %v, want %v", in, got, want)
		}
	}
	if got := openai.NoCapacity("m", 0).ClampedRetryAfter(); got != time.Second {
		t.Errorf("NoCapacity without a hint waits %v, want 1s", got)
	}
}

func TestShapeOf(t *testing.T) {
	for path, want := range map[string]openai.Shape{
		openai.PathChat: openai.ShapeChat, openai.PathEmbeddings: openai.ShapeEmbeddings, openai.PathCountTokens: openai.ShapeCount,
		"/v2/models/m/generate": openai.ShapeGenerate, "/v2/models/a%2Fb/versions/1/infer": openai.ShapeInfer, "/v2/rerank": openai.ShapeScore,
		openai.PathModels: 0, "/v1/chat": 0, "/v1/chat/completions/": 0, "//v1/chat/completions": 0, "/V1/chat/completions": 0,
		"/v1/%63hat/completions": 0, "/v1/./chat/completions": 0, "/v2/models/../infer": 0, "/v2/models/%2e%2e/infer": 0,
		"/v2/models/m/versions/../infer": 0, "/v2/models/m/versions/x%2F..%2F../infer": 0, "/v2/models/m/load": 0, "/v2/models//infer": 0,
	} {
		if got := openai.ShapeOf(path); got != want {
			t.Errorf("%s has shape %d, want %d", path, got, want)
		}
	}
}

// TestParseErrorAcceptsOnlyKnownCodes: a worker's code would become a metric label. Each Code constant is
// known.
func TestParseErrorAcceptsOnlyKnownCodes(t *testing.T) {
	text, err := os.ReadFile("error.go")
	requireNoError(t, err)
	found := regexp.MustCompile(`(?m)^\tCode\w+ += "(\w+)"$`).FindAllSubmatch(text, -1)
	if len(found) < 25 {
		t.Fatalf("%d codes are found", len(found))
	}
	for _, m := range found {
		e := &openai.Error{Status: 503, Type: openai.TypeServer, Code: string(m[1]), Message: "x"}
		if got := openai.ParseError(503, e.JSON()); got == nil || got.Code != e.Code {
			t.Errorf("%s is not read", m[1])
		}
	}
	for _, code := range []string{"", "x", "prompt-123", "NOT_FOUND"} {
		if got := openai.ParseError(400, (&openai.Error{Code: code}).JSON()); got != nil {
			t.Errorf("%q is read as %v", code, got)
		}
	}
}

func TestAnthropicErrors(t *testing.T) {
	for want, e := range map[string]*openai.Error{
		"authentication_error": openai.InvalidAPIKey(), "rate_limit_error": openai.RateLimited(openai.CodeTokens, 1), "overloaded_error": openai.NoCapacity("m", 1),
		"not_found_error": openai.ModelNotFound("m", nil), "invalid_request_error": openai.ModelRequired(), "request_too_large": openai.BodyTooLarge(1),
		"timeout_error": openai.DeadlineUnmeetable("local"), "permission_error": openai.ModelNotAllowed("m"), "api_error": openai.UpstreamLost(),
	} {
		var in struct {
			Type  string
			Error struct{ Type, Message, Code string }
		}
		if err := json.Unmarshal(e.AnthropicJSON(), &in); err != nil || in.Type != "error" || in.Error.Type != want || in.Error.Message != e.Message || in.Error.Code != e.Code {
			t.Errorf("%s: %s (%v)", e.Code, e.AnthropicJSON(), err)
		}
		if ev := string(e.AnthropicEvent()); !strings.HasPrefix(ev, "event: error\ndata: {") || !strings.HasSuffix(ev, "}\n\n") {
			t.Errorf("the event is %q", ev)
		}
	}
}
