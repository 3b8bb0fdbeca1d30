package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// writeTimeout bounds how long a client may leave one write unread.
const writeTimeout = 30 * time.Second

// answerWriter writes one answer to its client.
type answerWriter struct {
	server    *Server
	job       *generationJob
	answer    *pendingAnswer
	w         http.ResponseWriter
	chaosDraw float64 // decides whether chaos affects this request
	id        string
	created   int64
	buf       []byte
}

// streamAnswer sends one event for each token when it is generated.
func (o *answerWriter) streamAnswer(ctx context.Context) {
	control := http.NewResponseController(o.w)
	h := o.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	o.w.WriteHeader(http.StatusOK)
	control.Flush()
	sent := 0
	for ended := false; !ended; {
		made, over, err := o.answer.waitTokens(ctx, sent)
		if err != nil {
			o.failStream(err)
			return
		}
		ended = over
		time.Sleep(time.Duration(o.answer.stepPosition.Load()) * o.server.cfg.TokenSpacing)
		control.SetWriteDeadline(time.Now().Add(writeTimeout))
		for ; sent < made; sent++ {
			o.abortByChaos(sent)
			if !o.trickleByChaos(ctx) {
				return
			}
			if !o.sendBytes(o.encodeToken(sent, ended && sent == made-1)) {
				return
			}
		}
	}
	o.finishStream(ctx)
}

// sendBytes writes and flushes; false when the client has left.
func (o *answerWriter) sendBytes(b []byte) bool {
	if _, err := o.w.Write(b); err != nil {
		return false
	}
	return http.NewResponseController(o.w).Flush() == nil
}

// finishStream ends a stream that has all its tokens.
func (o *answerWriter) finishStream(ctx context.Context) {
	if !o.waitForFinish(ctx) {
		return
	}
	o.buf = o.buf[:0]
	if o.job.kind == kindAnthropic {
		o.sendBytes(o.appendMessageEnd(o.buf))
		return
	}
	if o.job.wantsUsage {
		o.buf = o.appendHead(append(o.buf, "data: "...))
		o.buf = append(o.buf, `"choices":[],"usage":`...)
		o.buf = append(o.appendUsage(o.buf), "}\n\n"...)
	}
	o.sendBytes(append(o.buf, "data: [DONE]\n\n"...))
}

// failStream sends the error that ends a stream. It does nothing if the client has left.
func (o *answerWriter) failStream(err error) {
	if !errors.Is(err, errOOM) {
		return
	}
	o.abortIfDown()
	if o.job.kind == kindAnthropic {
		o.sendBytes(encodeAnthropicError(err.Error()))
		return
	}
	b := append([]byte("data: "), encodeError(http.StatusInternalServerError, err.Error())...)
	o.sendBytes(append(b, "\n\ndata: [DONE]\n\n"...))
}

// waitForFinish waits for the time that an API server takes to finish an answer.
func (o *answerWriter) waitForFinish(ctx context.Context) bool {
	timer := time.NewTimer(o.server.driver.wallDuration(FinishTime))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// abortByChaos cuts the connection once the stream has AfterTokens tokens.
func (o *answerWriter) abortByChaos(sent int) {
	c := o.server.chaos.loadCurrent()
	if c.appliesTo(ModeDieMidstream, o.chaosDraw) && sent >= c.AfterTokens {
		panic(http.ErrAbortHandler)
	}
}

// abortIfDown cuts the connection of an answer whose process has ended.
func (o *answerWriter) abortIfDown() {
	if o.server.chaos.down.Load() {
		panic(http.ErrAbortHandler)
	}
}

// trickleByChaos delays a token in ModeTrickle; false when the client has left.
func (o *answerWriter) trickleByChaos(ctx context.Context) bool {
	c := o.server.chaos.loadCurrent()
	if c.Mode != ModeTrickle {
		return true
	}
	interval, _ := time.ParseDuration(c.Interval) // checked when it was set
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return false
	}
	http.NewResponseController(o.w).SetWriteDeadline(time.Now().Add(writeTimeout))
	return true
}

// writeWhole waits for all tokens and answers in one piece.
func (o *answerWriter) writeWhole(ctx context.Context) {
	for made, ended := 0, false; !ended; {
		var err error
		if made, ended, err = o.answer.waitTokens(ctx, made); err != nil {
			if errors.Is(err, errOOM) {
				o.abortIfDown()
				writeError(o.w, http.StatusInternalServerError, err.Error())
			}
			return
		}
		o.abortByChaos(made)
	}
	if !o.waitForFinish(ctx) {
		return
	}
	b := o.encodeWhole()
	o.w.Header().Set("Content-Type", "application/json")
	o.w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	o.w.Write(b)
}

// encodeWhole is the body of a whole answer.
func (o *answerWriter) encodeWhole() []byte {
	if o.job.kind == kindAnthropic {
		return o.appendMessage(nil)
	}
	b := o.appendHead(nil)
	b = append(b, `"choices":[{"index":0,`...)
	if o.job.kind == kindChat {
		b = append(b, `"message":{"role":"assistant","content":"`...)
		b = append(appendText(b, o.job.answerKey, o.job.continuedTokens, o.job.outputTokens), `","refusal":null,"tool_calls":[]}`...)
	} else {
		b = append(b, `"text":"`...)
		b = append(appendText(b, o.job.answerKey, o.job.continuedTokens, o.job.outputTokens), '"')
	}
	b = append(b, `,"logprobs":null,"finish_reason":"`...)
	b = append(b, o.job.finishReason...)
	b = append(b, `","stop_reason":null}],"usage":`...)
	return append(o.appendUsage(b), '}')
}

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
