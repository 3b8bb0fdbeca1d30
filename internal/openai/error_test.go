package openai_test

import (
	"encoding/json"
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
	if ev := string(e.Event()); !strings.HasPrefix(ev, `data: {"error":`) || !strings.HasSuffix(ev, "}\n\n") || strings.Count(ev, "\n") != 2 {
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
		if got := (&openai.Error{RetryAfter: in}).Retry(); got != want {
			t.Errorf("Retry of %v is %v, want %v", in, got, want)
		}
	}
	if got := openai.NoCapacity("m", 0).Retry(); got != time.Second {
		t.Errorf("NoCapacity without a hint waits %v, want 1s", got)
	}
}

func TestPaths(t *testing.T) {
	for path, want := range map[string]bool{openai.PathChat: true, openai.PathCompletions: true, openai.PathEmbeddings: true, openai.PathResponses: true, openai.PathModels: false, "/v1/chat": false} {
		if openai.Generates(path) != want {
			t.Errorf("Generates(%q) is %v", path, !want)
		}
	}
}
