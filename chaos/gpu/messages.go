package gpu

import (
	"encoding/json"
	"strconv"
)

// appendMessageHead starts a message of Anthropic's API, whole or in its stream's first event.
func (o *answerWriter) appendMessageHead(b []byte) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, o.id...)
	b = append(b, `","type":"message","role":"assistant","model":`...)
	b = strconv.AppendQuote(b, o.job.model)
	return append(b, ',')
}

// appendMessageUsage appends the token counts in Anthropic's format, where the input excludes cached tokens.
func (o *answerWriter) appendMessageUsage(b []byte, out int) []byte {
	cached := int(o.server.driver.cachedTokens(o.answer))
	b = append(b, `{"input_tokens":`...)
	b = strconv.AppendInt(b, int64(o.job.prompt.tokens-cached), 10)
	b = append(b, `,"cache_read_input_tokens":`...)
	b = strconv.AppendInt(b, int64(cached), 10)
	b = append(b, `,"output_tokens":`...)
	b = strconv.AppendInt(b, int64(out), 10)
	return append(b, '}')
}

// encodeMessageToken is the stream event of one token. The first is preceded by the events that start the message.
func (o *answerWriter) encodeMessageToken(i int) []byte {
	b := o.buf[:0]
	if i == 0 {
		b = append(b, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
		b = o.appendMessageHead(b)
		b = append(b, `"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
		b = append(o.appendMessageUsage(b, 0), "}}\n\n"...)
		b = append(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"...)
	}
	b = append(b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\""...)
	b = append(b, answerToken(o.job.answerKey, o.job.continuedTokens+i)...)
	o.buf = append(b, "\"}}\n\n"...)
	return o.buf
}

// appendMessageEnd appends the events that end a stream.
func (o *answerWriter) appendMessageEnd(b []byte) []byte {
	b = append(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"...)
	b = append(b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\""...)
	b = append(b, o.job.stopReason()...)
	b = append(b, `","stop_sequence":null},"usage":`...)
	b = append(o.appendMessageUsage(b, o.job.outputTokens), "}\n\n"...)
	return append(b, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
}

// appendMessage appends a whole answer.
func (o *answerWriter) appendMessage(b []byte) []byte {
	b = o.appendMessageHead(b)
	b = append(b, `"content":[{"type":"text","text":"`...)
	b = appendText(b, o.job.answerKey, o.job.continuedTokens, o.job.outputTokens)
	b = append(b, `"}],"stop_reason":"`...)
	b = append(b, o.job.stopReason()...)
	b = append(b, `","stop_sequence":null,"usage":`...)
	return append(o.appendMessageUsage(b, o.job.outputTokens), '}')
}

// encodeAnthropicError is an error of the worker as the last event of a stream.
func encodeAnthropicError(message string) []byte {
	b, _ := json.Marshal(map[string]any{ // strings always encode
		"type": "error", "error": map[string]string{"type": "api_error", "message": message},
	})
	return append(append([]byte("event: error\ndata: "), b...), "\n\n"...)
}
