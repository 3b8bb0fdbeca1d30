package openai

import (
	"bytes"
)

// maxHeldEvent bounds what UsageFilter buffers of an event that is split between chunks, in bytes. A usage
// event is far smaller: a longer one is passed on unchanged.
const maxHeldEvent = 16 << 10

// UsageFilter removes from a stream what an engine added because we requested usage and the client did not: the
// one event with empty "choices" and a "usage". The "usage":null that OpenAI, SGLang and older vLLM write into
// every other event stays: clients accept it, and removing it would mean rewriting each event. Newer vLLM and
// llama.cpp write none; llama.cpp's "timings" move into the usage event and are removed with it.
//
// Everything else passes unchanged and at once: only an incomplete event is buffered. An event that may not be
// a usage event passes (a second field in addition to its one data line, an error, malformed JSON). Lines may
// end with LF, CRLF or CR. The zero value is ready to use; once its buffers have grown, it allocates nothing.
type UsageFilter struct {
	heldEvent      []byte // the event so far, if a chunk ended inside it
	out            []byte
	lineHasText    bool // the current line is not empty
	afterCR        bool // the last byte was a CR, which an LF may complete
	lastRemoved    bool // the last complete event was removed
	passingThrough bool // the current event exceeds maxHeldEvent and is passed unchanged
}

// FilterChunk returns the part of the next bytes that goes to the client, valid until the next call.
func (f *UsageFilter) FilterChunk(p []byte) []byte {
	f.out = f.out[:0]
	if f.afterCR && len(f.heldEvent) == 0 && !f.passingThrough && len(p) > 0 && p[0] == '\n' { // the LF of the last event's CRLF
		if !f.lastRemoved {
			f.out = append(f.out, '\n')
		}
		f.afterCR, p = false, p[1:]
	}
	for len(p) > 0 {
		n, whole := f.cutEvent(p)
		f.handlePiece(p[:n], whole)
		p = p[n:]
	}
	return f.out
}

// HeldBytes returns the buffered bytes of an incomplete event, for a stream that has ended.
func (f *UsageFilter) HeldBytes() []byte { return f.heldEvent }

// cutEvent returns how many bytes of p belong to the current event, and whether they complete it.
func (f *UsageFilter) cutEvent(p []byte) (n int, whole bool) {
	i := 0
	if f.afterCR && p[0] == '\n' {
		i = 1
	}
	f.afterCR = false
	for i < len(p) {
		j := indexLineBreak(p[i:])
		if j < 0 {
			f.lineHasText = true
			break
		}
		blank := j == 0 && !f.lineHasText
		f.lineHasText = false
		i += j + 1
		if p[i-1] == '\r' {
			f.afterCR = i == len(p)
			if !f.afterCR && p[i] == '\n' {
				i++
			}
		}
		if blank {
			return i, true
		}
	}
	return len(p), false
}

// handlePiece passes or buffers a piece of the current event, or removes the event.
func (f *UsageFilter) handlePiece(piece []byte, whole bool) {
	if !whole && !f.passingThrough {
		if len(f.heldEvent)+len(piece) <= maxHeldEvent {
			f.heldEvent = append(f.heldEvent, piece...)
			return
		}
		f.passingThrough = true
	}
	f.lastRemoved = !f.passingThrough && f.isUsageEvent(piece)
	if !f.lastRemoved {
		f.out = append(append(f.out, f.heldEvent...), piece...)
	}
	f.heldEvent = f.heldEvent[:0]
	f.passingThrough = f.passingThrough && !whole
}

// isUsageEvent reports whether the event that ends with piece contains usage only.
func (f *UsageFilter) isUsageEvent(piece []byte) bool {
	if len(f.heldEvent)+len(piece) > maxHeldEvent {
		return false
	}
	if len(f.heldEvent) > 0 {
		n := len(f.heldEvent)
		piece = append(f.heldEvent, piece...)
		f.heldEvent = piece[:n]
	}
	data, ok := bytes.CutPrefix(bytes.TrimRight(piece, "\r\n"), []byte("data:"))
	return ok && mayContainKey(data, "usage") && indexLineBreak(data) < 0 && isUsageOnly(data)
}

// indexLineBreak returns the index of the first CR or LF, or -1.
func indexLineBreak(p []byte) int {
	n := bytes.IndexByte(p, '\n')
	if n < 0 {
		return bytes.IndexByte(p, '\r')
	}
	if r := bytes.IndexByte(p[:n], '\r'); r >= 0 {
		return r
	}
	return n
}

// mayContainKey reports whether a key of letters can occur in data, plain or with escaped letters. It is much
// cheaper than parsing.
func mayContainKey(data []byte, key string) bool {
	return bytes.Contains(data, []byte(key)) || bytes.Contains(data, []byte(`\u`))
}

// isUsageOnly reports whether the data of an event is an object with empty choices and a usage.
func isUsageOnly(data []byte) bool {
	m, ok := OpenMembers(data)
	empty, stated := false, false
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		switch string(key) {
		case "choices":
			if empty = len(v) > 1 && v[0] == '[' && skipSpace(v, 1) == len(v)-1; !empty {
				return false
			}
		case "usage":
			stated = v[0] == '{'
		case "error":
			return false
		}
	}
	return empty && stated && m.IsWholeDocument()
}

// StatesUsageOnRequest reports whether streams of a path include usage only if stream_options asks for it.
// Those of /v1/responses always do.
func StatesUsageOnRequest(path string) bool { return path == PathChat || path == PathCompletions }

// includeUsageMember is the member that makes an engine report the usage of a stream.
const includeUsageMember = `"include_usage":true`

// MayRequestUsage reports whether EditedBody.RequestUsage can be used on a request: it is streamed and does not
// ask for usage. Its stream options must neither change the meaning of include_usage from one event at the end
// (continuous_usage_stats, which vLLM applies only together with include_usage) nor be invalid.
func (e *Envelope) MayRequestUsage() bool { return e.Stream && !e.IncludeUsage && !e.oddOptions }

// usageEdit returns the span of the body to replace and the replacement.
func (e *Envelope) usageEdit(body []byte) (at, end int, text string) {
	options := body[e.optionsStart:e.optionsEnd]
	if len(options) == 0 {
		at = skipSpace(body, 0) + 1 // the object is not empty: it contains the model
		return at, at, `"stream_options":{` + includeUsageMember + `},`
	}
	o, ok := openObject(options)
	if !ok { // null
		return e.optionsStart, e.optionsEnd, "{" + includeUsageMember + "}"
	}
	members := 0
	for key, v, ok := o.nextMember(); ok; key, v, ok = o.nextMember() {
		if string(key) == "include_usage" {
			end = e.optionsStart + o.pos
			return end - len(v), end, "true"
		}
		members++
	}
	at = e.optionsStart + 1
	if members == 0 {
		return at, at, includeUsageMember
	}
	return at, at, includeUsageMember + ","
}

// readStreamOptions parses stream_options.
func (e *Envelope) readStreamOptions(v []byte, end int) {
	e.optionsStart, e.optionsEnd = end-len(v), end
	e.IncludeUsage, e.oddOptions = parseStreamOptions(v)
}

// parseStreamOptions reports whether the options ask for usage, and whether they are unusual so that nothing
// may be added. Engines differ in which of two equal members they use, and some accept 1 or "yes" as true.
func parseStreamOptions(v []byte) (usage, odd bool) {
	o, ok := openObject(v)
	if !ok {
		return false, string(v) != "null"
	}
	seen := false
	for {
		key, v, ok := o.nextMember()
		if !ok {
			return usage, odd || o.malformed
		}
		switch string(key) {
		case "include_usage":
			usage = string(v) == "true"
			odd = odd || seen || !usage && string(v) != "false" && string(v) != "null"
			seen = true
		case "continuous_usage_stats":
			odd = odd || string(v) != "false" && string(v) != "null"
		}
	}
}
