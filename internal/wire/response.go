package wire

import (
	"errors"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/lifetime"
)

const (
	// gathered is how much of an answer is kept until it is known whether more comes: an answer that fits has its length
	// told, as with net/http.
	gathered = 2 << 10
	// written is how much goes out in one piece.
	written = 32 << 10
	// maxSkip bounds what is read of a body that a handler left unread, in bytes.
	maxSkip = 256 << 10
	// lingering is how long a connection with an unread body is kept half open, so that the answer is read.
	lingering = 500 * time.Millisecond
)

// responseWriter writes one answer. out holds what was not sent yet.
type responseWriter struct {
	c       *serverConn
	ctx     lifetime.Context // the request's
	body    requestBody
	header  http.Header
	out     *output
	status  int
	length  int64 // that the handler has told; -1: none
	wrote   int64
	sealed  bool // WriteHeader was called: the head is what it was then
	begun   bool // the head is in out, or sent
	chunks  bool
	duplex  bool
	closing bool
	hidden  bool // an answer without a body
	err     error
	names   []string // of trailers

	follower Follower // has the rest of the answer, from when the handler returns
	source   *responseBody
}

// Header implements http.ResponseWriter.
func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *responseWriter) WriteHeader(status int) {
	if w.sealed {
		w.c.s.logf("a handler has written two heads, the second with status %d", status)
		return
	}
	if status < 100 || status > 999 {
		panic("invalid status " + strconv.Itoa(status))
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		w.buffer()
		w.statusLine(status)
		w.lines(w.header, false)
		w.out.b = append(w.out.b, "\r\n"...)
		w.send()
		return
	}
	w.sealed, w.status, w.length = true, status, -1
	w.hidden = status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
	if text := w.header.Get("Content-Length"); text != "" {
		if n, ok := length(text); ok {
			w.length = n
		} else {
			w.header.Del("Content-Length")
		}
	}
}

func (w *responseWriter) buffer() {
	if w.out == nil {
		w.out = getOutput()
	}
}

// Write implements http.ResponseWriter.
func (w *responseWriter) Write(p []byte) (int, error) {
	if !w.sealed {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case len(p) == 0:
		return 0, w.err
	case w.hidden:
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.wrote+int64(len(p)) > w.length:
		w.closing = true
		return 0, http.ErrContentLength
	}
	w.wrote += int64(len(p))
	w.buffer()
	if !w.begun {
		if w.length < 0 && len(w.out.b)+len(p) <= gathered {
			w.out.b = append(w.out.b, p...)
			return len(p), nil
		}
		w.start(p)
	}
	total := len(p)
	for len(p) > 0 && w.err == nil {
		w.buffer()
		n := min(len(p), written)
		if w.chunks {
			w.out.b = append(strconv.AppendInt(w.out.b, int64(n), 16), "\r\n"...)
		}
		w.out.b = append(w.out.b, p[:n]...)
		if w.chunks {
			w.out.b = append(w.out.b, "\r\n"...)
		}
		p = p[n:]
		if len(w.out.b) >= written {
			w.send()
		}
	}
	if w.err != nil {
		return total - len(p), w.err
	}
	return total, nil
}

// start puts the head before what was gathered of the body; more is what comes after it.
func (w *responseWriter) start(more []byte) {
	body := w.out
	w.out = getOutput()
	w.begun = true
	w.chunks = w.length < 0 && !w.hidden
	w.head(body.b, more)
	if len(body.b) > 0 {
		if w.chunks {
			w.out.b = append(strconv.AppendInt(w.out.b, int64(len(body.b)), 16), "\r\n"...)
		}
		w.out.b = append(w.out.b, body.b...)
		if w.chunks {
			w.out.b = append(w.out.b, "\r\n"...)
		}
	}
	putOutput(body)
}

func (w *responseWriter) statusLine(status int) {
	w.out.b = strconv.AppendInt(append(w.out.b, "HTTP/1.1 "...), int64(status), 10)
	text := http.StatusText(status)
	if text == "" {
		text = "status code " + strconv.Itoa(status)
	}
	w.out.b = append(append(append(w.out.b, ' '), text...), "\r\n"...)
}

// head writes the head. The pieces are the beginning of the body, of which its type is told when the handler has not.
func (w *responseWriter) head(pieces ...[]byte) {
	w.closing = w.closing || listed(w.header["Connection"], "close") || w.c.s.stopping.Load() ||
		!w.duplex && w.body.rest() > maxSkip
	w.statusLine(w.status)
	for _, v := range w.header["Trailer"] {
		for name := range strings.SplitSeq(v, ",") {
			w.names = append(w.names, textproto.CanonicalMIMEHeaderKey(strings.Trim(name, " \t")))
		}
	}
	w.lines(w.header, true)
	if _, told := w.header["Date"]; !told {
		w.out.b = append(append(append(w.out.b, "Date: "...), date()...), "\r\n"...)
	}
	if _, told := w.header["Content-Type"]; !told && !w.hidden && w.wrote > 0 && w.header["Content-Encoding"] == nil {
		for _, p := range pieces {
			if len(p) > 0 {
				w.out.b = append(append(append(w.out.b, "Content-Type: "...), http.DetectContentType(p)...), "\r\n"...)
				break
			}
		}
	}
	switch {
	case w.chunks:
		w.out.b = append(w.out.b, "Transfer-Encoding: chunked\r\n"...)
	case w.length >= 0 && w.status != http.StatusNoContent && w.status >= 200:
		w.out.b = append(strconv.AppendInt(append(w.out.b, "Content-Length: "...), w.length, 10), "\r\n"...)
	}
	if w.closing {
		w.out.b = append(w.out.b, "Connection: close\r\n"...)
	}
	w.out.b = append(w.out.b, "\r\n"...)
}

// lines writes headers but for those that are this server's to write.
func (w *responseWriter) lines(h http.Header, final bool) {
	for name, values := range h {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Connection":
			continue
		}
		if strings.HasPrefix(name, http.TrailerPrefix) || final && w.trails(name) || !token(name) {
			continue
		}
		for _, v := range values {
			w.line(name, v)
		}
	}
}

func (w *responseWriter) trails(name string) bool {
	for _, n := range w.names {
		if n == name {
			return true
		}
	}
	return false
}

// line writes one header. What would end it becomes a space.
func (w *responseWriter) line(name, value string) {
	w.out.b = append(append(w.out.b, name...), ": "...)
	at := len(w.out.b)
	w.out.b = append(w.out.b, strings.Trim(value, " \t\r\n")...)
	for i := at; i < len(w.out.b); i++ {
		if w.out.b[i] == '\r' || w.out.b[i] == '\n' {
			w.out.b[i] = ' '
		}
	}
	w.out.b = append(w.out.b, "\r\n"...)
}

// send writes what is gathered. A buffer is not held longer than that.
func (w *responseWriter) send() {
	if w.err == nil && w.out != nil && len(w.out.b) > 0 {
		w.err = w.c.write(w.out.b)
	}
	w.release()
}

func (w *responseWriter) release() {
	putOutput(w.out)
	w.out = nil
}

// FlushError sends what was written so far.
func (w *responseWriter) FlushError() error {
	if !w.sealed {
		w.WriteHeader(http.StatusOK)
	}
	w.buffer()
	if !w.begun {
		w.start(nil)
	}
	w.send()
	if w.err == nil {
		return nil
	}
	return w.err
}

// Flush implements http.Flusher.
func (w *responseWriter) Flush() { _ = w.FlushError() }

// SetReadDeadline is for http.ResponseController, as are those after it.
func (w *responseWriter) SetReadDeadline(t time.Time) error { return w.c.SetReadDeadline(t) }

// SetWriteDeadline bounds writes from now on.
func (w *responseWriter) SetWriteDeadline(t time.Time) error { return w.c.SetWriteDeadline(t) }

// EnableFullDuplex lets the body be read after the answer has begun.
func (w *responseWriter) EnableFullDuplex() error {
	w.duplex = true
	return nil
}

var errShort = errors.New("the handler wrote less than the Content-Length that it had told")

// finish ends the answer; false when the connection ends with it.
func (w *responseWriter) finish() bool {
	if !w.sealed {
		w.WriteHeader(http.StatusOK)
	}
	w.buffer()
	if !w.begun {
		if w.length < 0 && !w.hidden {
			w.length = int64(len(w.out.b))
		}
		w.start(nil)
	}
	switch {
	case w.chunks:
		w.out.b = append(w.out.b, "0\r\n"...)
		w.trailers()
		w.out.b = append(w.out.b, "\r\n"...)
	case w.length > w.wrote && !w.hidden:
		w.c.s.logf("%v", errShort)
		w.closing = true
	}
	w.send()
	if w.err != nil {
		return false
	}
	if w.body.rest() > 0 && !w.body.skip(maxSkip) {
		_ = w.c.tcp.CloseWrite() // the client may have done more
		time.Sleep(lingering)
		return false
	}
	if w.c.s.std.WriteTimeout > 0 {
		_ = w.c.SetWriteDeadline(time.Time{}) // an error shows again at once
	}
	return !w.closing
}

// trailers writes what was announced or is marked as such.
func (w *responseWriter) trailers() {
	for _, name := range w.names {
		if !token(name) {
			continue
		}
		for _, v := range w.header[name] {
			w.line(name, v)
		}
	}
	for name, values := range w.header {
		if name, marked := strings.CutPrefix(name, http.TrailerPrefix); marked && token(name) {
			for _, v := range values {
				w.line(name, v)
			}
		}
	}
}

// today is the Date header's text of one second.
type today struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[today]

func date() string {
	now := time.Now()
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &today{now.Unix(), now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}
