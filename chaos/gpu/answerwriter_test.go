package gpu

import (
	"encoding/json"
	"strings"
	"testing"
)

// Anthropic's messages have the same text as the chat of the same turns, whole and streamed.
func TestMessagesEqualChat(t *testing.T) {
	_, c := startServer(t, Config{})
	ask := func(path, more string) string {
		status, answer := c.postBody(path, `{"messages":[{"role":"user","content":"Where do I run?"}],"max_tokens":9`+more+`}`)
		if status != 200 {
			t.Fatalf("%d %s", status, answer)
		}
		return answer
	}
	type usage struct {
		Input  int `json:"input_tokens"`
		Read   int `json:"cache_read_input_tokens"`
		Output int `json:"output_tokens"`
	}
	var whole struct {
		Type, Role string
		Content    []struct{ Type, Text string }
		StopReason string `json:"stop_reason"`
		Usage      usage
	}
	if err := json.Unmarshal([]byte(ask("/v1/messages", "")), &whole); err != nil {
		t.Fatal(err)
	}
	text, u := whole.Content[0].Text, whole.Usage
	if whole.Type != "message" || whole.Role != "assistant" || whole.StopReason != "max_tokens" || u.Output != 9 || u.Input+u.Read != 4 || len(text) != 9*bytesPerToken {
		t.Errorf("%+v", whole)
	}
	if chat := ask("/v1/chat/completions", ""); !strings.Contains(chat, `"content":"`+text+`"`) {
		t.Errorf("the chat says %s, the message %q", chat, text)
	}
	var streamed, kinds string
	for _, e := range strings.Split(strings.TrimSpace(ask("/v1/messages", `,"stream":true`)), "\n\n") {
		name, data, _ := strings.Cut(e, "\ndata: ")
		var in struct {
			Type  string
			Delta struct {
				Text       string
				StopReason string `json:"stop_reason"`
			}
			Usage usage
		}
		if err := json.Unmarshal([]byte(data), &in); err != nil || name != "event: "+in.Type {
			t.Fatalf("%q: %v", e, err)
		}
		streamed += in.Delta.Text
		if in.Type != "content_block_delta" {
			kinds += in.Type + " "
		}
		if in.Type == "message_delta" && (in.Usage.Output != 9 || in.Delta.StopReason != "max_tokens") {
			t.Errorf("%s", e)
		}
	}
	if streamed != text || kinds != "message_start content_block_start content_block_stop message_delta message_stop " {
		t.Errorf("%q by %s, want %q", streamed, kinds, text)
	}
	if strings.Contains(ask("/v1/messages", `,"system":"Be brief."`), text) {
		t.Error("the system's words change nothing")
	}
}
