package openai

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestAnthropicErrors(t *testing.T) {
	for want, e := range map[string]*Error{
		"authentication_error": InvalidAPIKey(), "rate_limit_error": RateLimited(CodeTokens, 1), "overloaded_error": NoCapacity("m", 1),
		"not_found_error": ModelNotFound("m", nil), "invalid_request_error": ModelRequired(), "request_too_large": BodyTooLarge(1),
		"timeout_error": DeadlineUnmeetable("local"), "permission_error": ModelNotAllowed("m"), "api_error": UpstreamLost(),
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

// The usage of Anthropic's streams is assembled from their first and last event.
func TestAnthropicStreamsUsage(t *testing.T) {
	var m StreamMeter
	for _, e := range []string{
		`{"type":"message_start","message":{"id":"m","usage":{"input_tokens":25,"cache_read_input_tokens":7,"cache_creation_input_tokens":4,"output_tokens":1}}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`,
		`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":15}}`,
		`{"type":"message_stop"}`,
	} {
		m.AddChunk([]byte("event: x\ndata: " + e + "\n\n"))
	}
	if m.Usage != (TokenUsage{Prompt: 36, Completion: 15, Cached: 7, Stated: true}) || !m.Done || m.Events != 1 || m.Failed {
		t.Errorf("%+v, done %v, %d events", m.Usage, m.Done, m.Events)
	}
}
