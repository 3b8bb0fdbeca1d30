package gpu

import (
	"context"
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

// writeWhole waits for all tokens and answers in one piece.
func (o *answerWriter) writeWhole(ctx context.Context) {
	for made, ended := 0, false; !ended; {
		var err error
		if made, ended, err = o.answer.waitTokens(ctx, made); err != nil {
			if errors.Is(err, errOOM) {
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
