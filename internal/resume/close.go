package resume

import (
	"bytes"
	"strconv"

	"github.com/spillway-lb/spillway/internal/openai"
)

// close writes what a stream lacks that has all its text.
func (s *Seam) close(prompt int) []byte {
	var out []byte
	if !s.finished {
		choice := `"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}]`
		if s.request.Chat {
			choice = `"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]`
		}
		out = s.write(out, choice)
		s.finished = true
	}
	if s.request.Usage && !s.usage.Stated {
		s.usage = openai.Usage{Prompt: prompt, Completion: s.before, Stated: true}
		u := []byte(`"choices":[],"usage":{"prompt_tokens":`)
		u = strconv.AppendInt(u, int64(prompt), 10)
		u = strconv.AppendInt(append(u, `,"total_tokens":`...), int64(prompt+s.before), 10)
		u = strconv.AppendInt(append(u, `,"completion_tokens":`...), int64(s.before), 10)
		out = s.write(out, string(append(u, '}')))
	}
	s.done = true
	return append(out, "data: [DONE]\n\n"...)
}

// write appends an event of ours that looks like the engine's.
func (s *Seam) write(out []byte, rest string) []byte {
	object := `"text_completion"`
	if s.request.Chat {
		object = `"chat.completion.chunk"`
	}
	out = append(out, `data: {`...)
	for _, m := range []struct {
		key string
		v   []byte
	}{{"id", s.id}, {"object", []byte(object)}, {"created", s.made}, {"model", s.model}} {
		if len(bytes.TrimSpace(m.v)) > 0 {
			out = append(append(append(out, '"'), m.key...), `":`...)
			out = append(append(out, m.v...), ',')
		}
	}
	return append(append(out, rest...), "}\n\n"...)
}
