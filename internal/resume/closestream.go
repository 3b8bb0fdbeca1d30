package resume

import (
	"bytes"
	"strconv"

	"github.com/spillway-lb/spillway/internal/openai"
)

// closeStream returns the missing end of a stream that has all its text.
func (s *Splicer) closeStream(prompt int) []byte {
	var out []byte
	if !s.finished {
		choice := `"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}]`
		if s.request.IsChat {
			choice = `"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]`
		}
		out = s.appendEvent(out, choice)
		s.finished = true
	}
	if s.request.WantsUsage && !s.usage.Stated {
		s.usage = openai.TokenUsage{Prompt: prompt, Completion: s.tokensBeforeCut, Stated: true}
		u := []byte(`"choices":[],"usage":{"prompt_tokens":`)
		u = strconv.AppendInt(u, int64(prompt), 10)
		u = strconv.AppendInt(append(u, `,"total_tokens":`...), int64(prompt+s.tokensBeforeCut), 10)
		u = strconv.AppendInt(append(u, `,"completion_tokens":`...), int64(s.tokensBeforeCut), 10)
		out = s.appendEvent(out, string(append(u, '}')))
	}
	s.done = true
	return append(out, "data: [DONE]\n\n"...)
}

// appendEvent appends a synthesized event in the format of the engine.
func (s *Splicer) appendEvent(out []byte, rest string) []byte {
	object := `"text_completion"`
	if s.request.IsChat {
		object = `"chat.completion.chunk"`
	}
	out = append(out, `data: {`...)
	for _, m := range []struct {
		key string
		v   []byte
	}{{"id", s.id}, {"object", []byte(object)}, {"created", s.created}, {"model", s.model}} {
		if len(bytes.TrimSpace(m.v)) > 0 {
			out = append(append(append(out, '"'), m.key...), `":`...)
			out = append(append(out, m.v...), ',')
		}
	}
	return append(append(out, rest...), "}\n\n"...)
}
