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

// outbox writes one answer to its client.
type outbox struct {
	server  *Server
	job     *job
	answer  *answer
	w       http.ResponseWriter
	draw    float64 // decides whether chaos hits this request
	id      string
	created int64
	buf     []byte
}

// stream sends one event for each token, as each is made.
func (o *outbox) stream(ctx context.Context) {
	control := http.NewResponseController(o.w)
	h := o.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	o.w.WriteHeader(http.StatusOK)
	control.Flush()
	sent := 0
	for ended := false; !ended; {
		made, over, err := o.answer.wait(ctx, sent)
		if err != nil {
			o.giveUp(err)
			return
		}
		ended = over
		time.Sleep(time.Duration(o.answer.place.Load()) * o.server.cfg.Apart)
		control.SetWriteDeadline(time.Now().Add(writeTimeout))
		for ; sent < made; sent++ {
			o.dieIfTold(sent)
			if !o.send(o.event(sent, ended && sent == made-1)) {
				return
			}
		}
	}
	o.close(ctx)
}

// send writes and flushes; false when the client has left.
func (o *outbox) send(b []byte) bool {
	if _, err := o.w.Write(b); err != nil {
		return false
	}
	return http.NewResponseController(o.w).Flush() == nil
}

// close ends a stream that has all its tokens.
func (o *outbox) close(ctx context.Context) {
	if !o.pause(ctx) {
		return
	}
	o.buf = o.buf[:0]
	if o.job.kind == anthropic {
		o.send(o.messageEnd(o.buf))
		return
	}
	if o.job.usage {
		o.buf = o.head(append(o.buf, "data: "...))
		o.buf = append(o.buf, `"choices":[],"usage":`...)
		o.buf = append(o.usage(o.buf), "}\n\n"...)
	}
	o.send(append(o.buf, "data: [DONE]\n\n"...))
}

// giveUp tells the client of a stream why it ends early. A client that has left is told nothing.
func (o *outbox) giveUp(err error) {
	if !errors.Is(err, errOOM) {
		return
	}
	if o.job.kind == anthropic {
		o.send(anthropicError(err.Error()))
		return
	}
	b := append([]byte("data: "), errorBody(http.StatusInternalServerError, err.Error())...)
	o.send(append(b, "\n\ndata: [DONE]\n\n"...))
}

// pause is the time an API server takes to finish an answer.
func (o *outbox) pause(ctx context.Context) bool {
	timer := time.NewTimer(o.server.driver.wall(Finish))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// dieIfTold cuts the connection once the stream has had the tokens that chaos grants it.
func (o *outbox) dieIfTold(sent int) {
	c := o.server.chaos.get()
	if c.hits(ModeDieMidstream, o.draw) && sent >= c.AfterTokens {
		panic(http.ErrAbortHandler)
	}
}

// whole waits for all tokens and answers in one piece.
func (o *outbox) whole(ctx context.Context) {
	for made, ended := 0, false; !ended; {
		var err error
		if made, ended, err = o.answer.wait(ctx, made); err != nil {
			if errors.Is(err, errOOM) {
				refuse(o.w, http.StatusInternalServerError, err.Error())
			}
			return
		}
		o.dieIfTold(made)
	}
	if !o.pause(ctx) {
		return
	}
	b := o.answered()
	o.w.Header().Set("Content-Type", "application/json")
	o.w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	o.w.Write(b)
}

// answered is an answer in one piece.
func (o *outbox) answered() []byte {
	if o.job.kind == anthropic {
		return o.message(nil)
	}
	b := o.head(nil)
	b = append(b, `"choices":[{"index":0,`...)
	if o.job.kind == chat {
		b = append(b, `"message":{"role":"assistant","content":"`...)
		b = append(appendText(b, o.job.key, o.job.from, o.job.output), `","refusal":null,"tool_calls":[]}`...)
	} else {
		b = append(b, `"text":"`...)
		b = append(appendText(b, o.job.key, o.job.from, o.job.output), '"')
	}
	b = append(b, `,"logprobs":null,"finish_reason":"`...)
	b = append(b, o.job.finish...)
	b = append(b, `","stop_reason":null}],"usage":`...)
	return append(o.usage(b), '}')
}
