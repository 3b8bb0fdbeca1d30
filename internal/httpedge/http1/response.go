package http1

import (
	"errors"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillway-lb/spillway/internal/httpedge/reqctx"
)

const (
	// maxGatheredBody is how much of a response is buffered until it is known whether more follows, in bytes. A
	// response that fits gets a Content-Length, as with net/http.
	maxGatheredBody = 2 << 10
	// maxWriteBytes bounds one write, in bytes.
	maxWriteBytes = 32 << 10
	// maxDiscardBytes bounds what is read of a body that a handler left unread, in bytes.
	maxDiscardBytes = 256 << 10
	// lingerTime is how long a connection with an unread body is kept half open, so that the client can read
	// the response.
	lingerTime = 500 * time.Millisecond
	// lingerBytes bounds what such a connection may still receive, in bytes.
	lingerBytes = 1 << 20
)

// responseWriter writes one response. out holds the unsent bytes.
type responseWriter struct {
	conn          *serverConn
	ctx           reqctx.Context // the context of the request
	reqBody       requestBody
	header        http.Header
	out           *outputBuffer
	status        int
	contentLength int64 // set by the handler; -1: not set
	bodyWritten   int64
	wroteHeader   bool // WriteHeader was called: later header changes have no effect
	headBuilt     bool // the head is in out or was sent
	chunked       bool
	fullDuplex    bool
	closeAfter    bool
	bodyForbidden bool // a response without a body
	err           error
	trailerNames  []string // announced trailers

	detachHandler DetachHandler // receives the rest of the response after the handler returns
	detachedBody  *responseBody
}

// Header implements http.ResponseWriter.
func (w *responseWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *responseWriter) WriteHeader(status int) {
	if w.wroteHeader {
		w.conn.server.logf("a handler has written two heads, the second with status %d", status)
		return
	}
	if status < 100 || status > 999 {
		panic("invalid status " + strconv.Itoa(status))
	}
	if status < 200 && status != http.StatusSwitchingProtocols {
		w.ensureOutput()
		w.appendStatusLine(status)
		w.appendHeaderLines(w.header, false)
		w.out.b = append(w.out.b, "\r\n"...)
		w.sendOutput()
		return
	}
	w.wroteHeader, w.status, w.contentLength = true, status, -1
	w.bodyForbidden = status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
	if text := w.header.Get("Content-Length"); text != "" {
		if n, ok := parseContentLength(text); ok {
			w.contentLength = n
		} else {
			w.header.Del("Content-Length")
		}
	}
}

func (w *responseWriter) ensureOutput() {
	if w.out == nil {
		w.out = getOutput()
	}
}

// Write implements http.ResponseWriter.
func (w *responseWriter) Write(p []byte) (int, error) {
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case len(p) == 0:
		return 0, w.err
	case w.bodyForbidden:
		return 0, http.ErrBodyNotAllowed
	case w.contentLength >= 0 && w.bodyWritten+int64(len(p)) > w.contentLength:
		w.closeAfter = true
		return 0, http.ErrContentLength
	}
	w.bodyWritten += int64(len(p))
	w.ensureOutput()
	if !w.headBuilt {
		if w.contentLength < 0 && len(w.out.b)+len(p) <= maxGatheredBody {
			w.out.b = append(w.out.b, p...)
			return len(p), nil
		}
		w.prependHead(p)
	}
	total := len(p)
	for len(p) > 0 && w.err == nil {
		w.ensureOutput()
		n := min(len(p), maxWriteBytes)
		if w.chunked {
			w.out.b = append(strconv.AppendInt(w.out.b, int64(n), 16), "\r\n"...)
		}
		w.out.b = append(w.out.b, p[:n]...)
		if w.chunked {
			w.out.b = append(w.out.b, "\r\n"...)
		}
		p = p[n:]
		if len(w.out.b) >= maxWriteBytes {
			w.sendOutput()
		}
	}
	if w.err != nil {
		return total - len(p), w.err
	}
	return total, nil
}

// prependHead puts the head before the gathered part of the body; more follows it.
func (w *responseWriter) prependHead(more []byte) {
	body := w.out
	w.out = getOutput()
	w.headBuilt = true
	w.chunked = w.contentLength < 0 && !w.bodyForbidden
	w.appendHead(body.b, more)
	if len(body.b) > 0 {
		if w.chunked {
			w.out.b = append(strconv.AppendInt(w.out.b, int64(len(body.b)), 16), "\r\n"...)
		}
		w.out.b = append(w.out.b, body.b...)
		if w.chunked {
			w.out.b = append(w.out.b, "\r\n"...)
		}
	}
	putOutput(body)
}

func (w *responseWriter) appendStatusLine(status int) {
	w.out.b = strconv.AppendInt(append(w.out.b, "HTTP/1.1 "...), int64(status), 10)
	text := http.StatusText(status)
	if text == "" {
		text = "status code " + strconv.Itoa(status)
	}
	w.out.b = append(append(append(w.out.b, ' '), text...), "\r\n"...)
}

// appendHead writes the head. pieces are the beginning of the body, from which the Content-Type is detected if
// the handler has not set one.
func (w *responseWriter) appendHead(pieces ...[]byte) {
	w.closeAfter = w.closeAfter || listContains(w.header["Connection"], "close") || w.conn.server.stopping.Load() ||
		!w.fullDuplex && w.reqBody.unreadBytes() > maxDiscardBytes
	w.appendStatusLine(w.status)
	for _, v := range w.header["Trailer"] {
		for name := range strings.SplitSeq(v, ",") {
			w.trailerNames = append(w.trailerNames, textproto.CanonicalMIMEHeaderKey(strings.Trim(name, " \t")))
		}
	}
	w.appendHeaderLines(w.header, true)
	if _, set := w.header["Date"]; !set {
		w.out.b = append(append(append(w.out.b, "Date: "...), httpDate()...), "\r\n"...)
	}
	if _, set := w.header["Content-Type"]; !set && !w.bodyForbidden && w.bodyWritten > 0 && w.header["Content-Encoding"] == nil {
		for _, p := range pieces {
			if len(p) > 0 {
				w.out.b = append(append(append(w.out.b, "Content-Type: "...), http.DetectContentType(p)...), "\r\n"...)
				break
			}
		}
	}
	switch {
	case w.chunked:
		w.out.b = append(w.out.b, "Transfer-Encoding: chunked\r\n"...)
	case w.contentLength >= 0 && w.status != http.StatusNoContent && w.status >= 200:
		w.out.b = append(strconv.AppendInt(append(w.out.b, "Content-Length: "...), w.contentLength, 10), "\r\n"...)
	}
	if w.closeAfter {
		w.out.b = append(w.out.b, "Connection: close\r\n"...)
	}
	w.out.b = append(w.out.b, "\r\n"...)
}

// appendHeaderLines writes the headers except those that the server itself writes.
func (w *responseWriter) appendHeaderLines(h http.Header, final bool) {
	for name, values := range h {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Connection":
			continue
		}
		if strings.HasPrefix(name, http.TrailerPrefix) || final && w.isTrailer(name) || !isToken(name) {
			continue
		}
		for _, v := range values {
			w.appendHeaderLine(name, v)
		}
	}
}

func (w *responseWriter) isTrailer(name string) bool {
	for _, n := range w.trailerNames {
		if n == name {
			return true
		}
	}
	return false
}

// appendHeaderLine writes one header. Line breaks in the value become spaces.
func (w *responseWriter) appendHeaderLine(name, value string) {
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

// sendOutput writes the gathered bytes and releases the buffer.
func (w *responseWriter) sendOutput() {
	if w.err == nil && w.out != nil && len(w.out.b) > 0 {
		w.err = w.conn.writeWithDeadline(w.out.b)
	}
	w.releaseOutput()
}

func (w *responseWriter) releaseOutput() {
	putOutput(w.out)
	w.out = nil
}

// FlushError sends what was written so far.
func (w *responseWriter) FlushError() error {
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	w.ensureOutput()
	if !w.headBuilt {
		w.prependHead(nil)
	}
	w.sendOutput()
	if w.err == nil {
		return nil
	}
	return w.err
}

// Flush implements http.Flusher.
func (w *responseWriter) Flush() { _ = w.FlushError() }

// SetReadDeadline implements the interface of http.ResponseController.
func (w *responseWriter) SetReadDeadline(t time.Time) error { return w.conn.SetReadDeadline(t) }

// SetWriteDeadline bounds writes from now on.
func (w *responseWriter) SetWriteDeadline(t time.Time) error { return w.conn.SetWriteDeadline(t) }

// EnableFullDuplex lets the body be read after the response has begun.
func (w *responseWriter) EnableFullDuplex() error {
	w.fullDuplex = true
	return nil
}

var errShortBody = errors.New("the handler wrote less than its Content-Length")

// finishResponse ends the response. It returns false if the connection ends with it.
func (w *responseWriter) finishResponse() bool {
	if !w.wroteHeader {
		w.WriteHeader(http.StatusOK)
	}
	w.ensureOutput()
	if !w.headBuilt {
		if w.contentLength < 0 && !w.bodyForbidden && len(w.header["Trailer"]) == 0 { // a body of known length has no trailer
			w.contentLength = int64(len(w.out.b))
		}
		w.prependHead(nil)
	}
	switch {
	case w.chunked:
		w.out.b = append(w.out.b, "0\r\n"...)
		w.appendTrailers()
		w.out.b = append(w.out.b, "\r\n"...)
	case w.contentLength > w.bodyWritten && !w.bodyForbidden:
		w.conn.server.logf("%v", errShortBody)
		w.closeAfter = true
	}
	w.sendOutput()
	if w.err != nil {
		return false
	}
	if w.reqBody.unreadBytes() > 0 && !w.reqBody.discardRest(maxDiscardBytes) {
		_ = w.conn.tcpConn.CloseWrite() // the client may have closed already
		time.Sleep(lingerTime)
		return false
	}
	if w.conn.server.httpServer.WriteTimeout > 0 {
		_ = w.conn.SetWriteDeadline(time.Time{}) // the next write returns the error
	}
	return !w.closeAfter
}

// appendTrailers writes the trailers that were announced or have the trailer prefix.
func (w *responseWriter) appendTrailers() {
	for _, name := range w.trailerNames {
		if !isToken(name) {
			continue
		}
		for _, v := range w.header[name] {
			w.appendHeaderLine(name, v)
		}
	}
	for name, values := range w.header {
		if name, marked := strings.CutPrefix(name, http.TrailerPrefix); marked && isToken(name) {
			for _, v := range values {
				w.appendHeaderLine(name, v)
			}
		}
	}
}

// cachedDate is the Date header of one second.
type cachedDate struct {
	second int64
	text   string
}

var lastDate atomic.Pointer[cachedDate]

// AppendDate appends a Date header line.
func AppendDate(out []byte) []byte {
	return append(append(append(out, "Date: "...), httpDate()...), "\r\n"...)
}

func httpDate() string {
	now := time.Now()
	if d := lastDate.Load(); d != nil && d.second == now.Unix() {
		return d.text
	}
	d := &cachedDate{now.Unix(), now.UTC().Format(http.TimeFormat)}
	lastDate.Store(d)
	return d.text
}
