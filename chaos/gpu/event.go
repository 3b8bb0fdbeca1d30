package gpu

import "strconv"

// head opens an answer's object with what all of its pieces share.
func (o *outbox) head(b []byte) []byte {
	object := "chat.completion"
	if o.job.kind == completion {
		object = "text_completion"
	} else if o.job.stream {
		object = "chat.completion.chunk"
	}
	b = append(b, `{"id":"`...)
	b = append(b, o.id...)
	b = append(b, `","object":"`...)
	b = append(b, object...)
	b = append(b, `","created":`...)
	b = strconv.AppendInt(b, o.created, 10)
	b = append(b, `,"model":`...)
	b = strconv.AppendQuote(b, o.job.model)
	return append(b, ',')
}

// event returns the stream's event for one token. The first of a chat is preceded by the one that names the role.
func (o *outbox) event(i int, last bool) []byte {
	if o.job.kind == anthropic {
		return o.messageEvent(i)
	}
	b := o.buf[:0]
	if o.job.kind == chat {
		if i == 0 {
			b = o.head(append(b, "data: "...))
			b = append(b, `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`+"\n\n"...)
		}
		b = o.head(append(b, "data: "...))
		b = append(b, `"choices":[{"index":0,"delta":{"content":"`...)
		b = append(b, word(o.job.key, o.job.from+i)...)
		b = append(b, `"},"logprobs":null,"finish_reason":`...)
	} else {
		b = o.head(append(b, "data: "...))
		b = append(b, `"choices":[{"index":0,"text":"`...)
		b = append(b, word(o.job.key, o.job.from+i)...)
		b = append(b, `","logprobs":null,"finish_reason":`...)
	}
	if last {
		b = append(b, '"')
		b = append(b, o.job.finish...)
		b = append(b, `","stop_reason":null}]}`+"\n\n"...)
	} else {
		b = append(b, "null}]}\n\n"...)
	}
	o.buf = b
	return b
}

// usage appends the token counts.
func (o *outbox) usage(b []byte) []byte {
	in, out := o.job.input.tokens, o.job.output
	b = append(b, `{"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(in), 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, int64(in+out), 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, int64(out), 10)
	b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
	b = strconv.AppendInt(b, int64(o.server.driver.cached(o.answer)), 10)
	return append(b, "}}"...)
}
