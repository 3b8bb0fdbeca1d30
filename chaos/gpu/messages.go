package gpu

import (
	"encoding/json"
	"strconv"
)

// turns are the messages of a request: in Anthropic's API the system's words stand beside them.
func (b *body) turns(k kind) []message {
	if k != anthropic || !asked(b.System) {
		return b.Messages
	}
	return append([]message{{Role: "system", Content: b.System}}, b.Messages...)
}

// stopReason is why an answer ended, in Anthropic's words.
func (j *job) stopReason() string {
	if j.finish == "length" {
		return "max_tokens"
	}
	return "end_turn"
}

// messageHead opens a message of Anthropic's API, whole or as its stream announces it.
func (o *outbox) messageHead(b []byte) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, o.id...)
	b = append(b, `","type":"message","role":"assistant","model":`...)
	b = strconv.AppendQuote(b, o.job.model)
	return append(b, ',')
}

// messageUsage appends the token counts as Anthropic's API has them, which leaves cached tokens out of the input.
func (o *outbox) messageUsage(b []byte, out int) []byte {
	cached := int(o.server.driver.cached(o.answer))
	b = append(b, `{"input_tokens":`...)
	b = strconv.AppendInt(b, int64(o.job.input.tokens-cached), 10)
	b = append(b, `,"cache_read_input_tokens":`...)
	b = strconv.AppendInt(b, int64(cached), 10)
	b = append(b, `,"output_tokens":`...)
	b = strconv.AppendInt(b, int64(out), 10)
	return append(b, '}')
}

// messageEvent is the stream's event for one token. The first is preceded by what announces the message.
func (o *outbox) messageEvent(i int) []byte {
	b := o.buf[:0]
	if i == 0 {
		b = append(b, "event: message_start\ndata: {\"type\":\"message_start\",\"message\":"...)
		b = o.messageHead(b)
		b = append(b, `"content":[],"stop_reason":null,"stop_sequence":null,"usage":`...)
		b = append(o.messageUsage(b, 0), "}}\n\n"...)
		b = append(b, "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"...)
	}
	b = append(b, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\""...)
	b = append(b, word(o.job.key, o.job.from+i)...)
	o.buf = append(b, "\"}}\n\n"...)
	return o.buf
}

// messageEnd appends the events that end a stream.
func (o *outbox) messageEnd(b []byte) []byte {
	b = append(b, "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n"...)
	b = append(b, "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\""...)
	b = append(b, o.job.stopReason()...)
	b = append(b, `","stop_sequence":null},"usage":`...)
	b = append(o.messageUsage(b, o.job.output), "}\n\n"...)
	return append(b, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"...)
}

// message appends an answer in one piece.
func (o *outbox) message(b []byte) []byte {
	b = o.messageHead(b)
	b = append(b, `"content":[{"type":"text","text":"`...)
	b = appendText(b, o.job.key, o.job.from, o.job.output)
	b = append(b, `"}],"stop_reason":"`...)
	b = append(b, o.job.stopReason()...)
	b = append(b, `","stop_sequence":null,"usage":`...)
	return append(o.messageUsage(b, o.job.output), '}')
}

// anthropicError is an error of the worker as the last event of a stream.
func anthropicError(message string) []byte {
	b, _ := json.Marshal(map[string]any{ // strings always encode
		"type": "error", "error": map[string]string{"type": "api_error", "message": message},
	})
	return append(append([]byte("event: error\ndata: "), b...), "\n\n"...)
}
