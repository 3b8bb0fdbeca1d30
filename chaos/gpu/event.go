package gpu

import "strconv"

// appendHead starts an answer's object with the fields common to all of its chunks.
func (o *answerWriter) appendHead(b []byte) []byte {
	object := "chat.completion"
	if o.job.kind == kindCompletion {
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

// encodeToken is the stream event of one token. The first of a chat is preceded by the event with the role.
func (o *answerWriter) encodeToken(i int, last bool) []byte {
	if o.job.kind == kindAnthropic {
		return o.encodeMessageToken(i)
	}
	b := o.buf[:0]
	if o.job.kind == kindChat {
		if i == 0 {
			b = o.appendHead(append(b, "data: "...))
			b = append(b, `"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}`+"\n\n"...)
		}
		b = o.appendHead(append(b, "data: "...))
		b = append(b, `"choices":[{"index":0,"delta":{"content":"`...)
		b = append(b, answerToken(o.job.answerKey, o.job.continuedTokens+i)...)
		b = append(b, `"},"logprobs":null,"finish_reason":`...)
	} else {
		b = o.appendHead(append(b, "data: "...))
		b = append(b, `"choices":[{"index":0,"text":"`...)
		b = append(b, answerToken(o.job.answerKey, o.job.continuedTokens+i)...)
		b = append(b, `","logprobs":null,"finish_reason":`...)
	}
	if last {
		b = append(b, '"')
		b = append(b, o.job.finishReason...)
		b = append(b, `","stop_reason":null}]}`+"\n\n"...)
	} else {
		b = append(b, "null}]}\n\n"...)
	}
	o.buf = b
	return b
}

// appendUsage appends the token counts.
func (o *answerWriter) appendUsage(b []byte) []byte {
	in, out := o.job.prompt.tokens, o.job.outputTokens
	b = append(b, `{"prompt_tokens":`...)
	b = strconv.AppendInt(b, int64(in), 10)
	b = append(b, `,"total_tokens":`...)
	b = strconv.AppendInt(b, int64(in+out), 10)
	b = append(b, `,"completion_tokens":`...)
	b = strconv.AppendInt(b, int64(out), 10)
	b = append(b, `,"prompt_tokens_details":{"cached_tokens":`...)
	b = strconv.AppendInt(b, int64(o.server.driver.cachedTokens(o.answer)), 10)
	return append(b, "}}"...)
}
