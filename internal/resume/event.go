package resume

import (
	"bytes"
	"strconv"

	"github.com/spillway-lb/spillway/internal/openai"
)

// streamEvent is a parsed server-sent event. Spans are offsets in the event.
type streamEvent struct {
	isComment, isDone, isError bool
	isClientError              bool // failed, and the client is at fault: another worker would respond the same

	id, created, model, fingerprint span // raw values of the object's own members
	choices, delta, content         span // content is quoted, of a chat or of a completion
	finishReason                    span // of a reason other than null
	usage                           span // of an object
	noChoices                       bool // choices is []
	hasOtherContent                 bool // it has content besides text
}

func (s span) sliceOf(d []byte) []byte { return d[s.start:s.end] }
func (s span) isPresent() bool         { return s.end > s.start }

// parseEvent parses an event. It returns false if it has an unknown format.
func (e *streamEvent) parseEvent(ev []byte) bool {
	*e = streamEvent{}
	body := bytes.TrimRight(ev, "\r\n")
	if len(body) == 0 || body[0] == ':' && bytes.IndexByte(body, '\n') < 0 {
		e.isComment = true
		return true
	}
	data, ok := bytes.CutPrefix(body, []byte("data:"))
	if !ok || bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 {
		return false
	}
	at := len(body) - len(data)
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		e.isDone = true
		return true
	}
	m, ok := openai.OpenMembers(data)
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		if !e.parseMember(string(key), v, span{at + m.EndOffset() - len(v), at + m.EndOffset()}) {
			return false
		}
	}
	e.isClientError = e.isClientError && e.isError
	return m.IsWholeDocument()
}

// blamesClient reports whether an error object blames the request: its code is an HTTP status 4xx or, without a
// status, its type is that of an invalid request.
func blamesClient(v []byte) bool {
	m, ok := openai.OpenMembers(v)
	status, typed := 0, false
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		switch string(key) {
		case "code":
			if n, err := strconv.Atoi(string(bytes.Trim(v, `"`))); err == nil {
				status = n
			}
		case "type":
			kind := bytes.ToLower(v)
			typed = bytes.Contains(kind, []byte("badrequest")) || bytes.Contains(kind, []byte("invalid_request"))
		}
	}
	if m.IsMalformed() {
		return false
	}
	if status != 0 {
		return status/100 == 4
	}
	return typed
}

func (e *streamEvent) parseMember(key string, v []byte, s span) bool {
	switch key {
	case "id":
		e.id = s
	case "created":
		e.created = s
	case "model":
		e.model = s
	case "system_fingerprint":
		e.fingerprint = s
	case "usage":
		if v[0] == '{' {
			e.usage = s
		}
	case "error":
		e.isError = e.isError || string(v) != "null"
		e.isClientError = e.isClientError || blamesClient(v)
	case "error_type": // TGI
		e.isClientError = e.isClientError || string(v) == `"validation"`
	case "choices":
		e.choices = s
		return e.parseChoice(v, s.start)
	}
	return true
}

// parseChoice parses the one choice of an event.
func (e *streamEvent) parseChoice(v []byte, at int) bool {
	list, ok := openai.OpenElements(v)
	if !ok {
		return false
	}
	c, ok := list.Next()
	if !ok {
		e.noChoices = !list.IsMalformed()
		return e.noChoices
	}
	at += list.EndOffset() - len(c)
	if _, more := list.Next(); more {
		return false
	}
	m, ok := openai.OpenMembers(c)
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		s := span{at + m.EndOffset() - len(v), at + m.EndOffset()}
		switch string(key) {
		case "index":
			ok = string(v) == "0"
		case "text":
			ok = v[0] == '"'
			e.content = s
		case "finish_reason":
			if v[0] == '"' {
				e.finishReason = s
			}
		case "logprobs":
			e.hasOtherContent = e.hasOtherContent || string(v) != "null"
		case "delta":
			e.delta = s
			ok = e.parseDelta(v, s.start)
		}
		if !ok {
			return false
		}
	}
	return !m.IsMalformed() && !list.IsMalformed()
}

// parseDelta parses the delta of a chat.
func (e *streamEvent) parseDelta(v []byte, at int) bool {
	m, ok := openai.OpenMembers(v)
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		switch string(key) {
		case "role":
		case "content":
			if v[0] == '"' {
				e.content = span{at + m.EndOffset() - len(v), at + m.EndOffset()}
			} else if string(v) != "null" {
				e.hasOtherContent = true
			}
		default:
			e.hasOtherContent = e.hasOtherContent || !isUnset(v)
		}
	}
	return !m.IsMalformed()
}

// contentText returns the escaped content of the event, without quotes.
func (e *streamEvent) contentText(ev []byte) []byte {
	if !e.content.isPresent() {
		return nil
	}
	return ev[e.content.start+1 : e.content.end-1]
}

// editUsage returns the edits that set the amounts of the usage object in d.
func editUsage(d []byte, s span, u openai.TokenUsage) []textEdit {
	var edits []textEdit
	m, ok := openai.OpenMembers(s.sliceOf(d))
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		n := -1
		switch string(key) {
		case "prompt_tokens", "input_tokens":
			n = u.Prompt
		case "completion_tokens", "output_tokens":
			n = u.Completion
		case "total_tokens":
			n = u.Prompt + u.Completion
		}
		if n >= 0 {
			edits = append(edits, textEdit{span{s.start + m.EndOffset() - len(v), s.start + m.EndOffset()}, strconv.AppendInt(nil, int64(n), 10)})
		}
	}
	return edits
}

// maxEventBytes bounds what is buffered of an incomplete event, in bytes.
const maxEventBytes = 16 << 10

// eventLength returns the length of the first event in d, including its blank line; -1 if it is incomplete, -2
// if lines end with CR alone. Bytes before from need not be examined again.
func eventLength(d []byte, from int) int {
	i := max(from-3, 0)
	if i == 0 && len(d) > 0 && d[0] == '\n' {
		return 1
	}
	for {
		j := bytes.IndexByte(d[i:], '\n')
		end := i + j
		if j < 0 {
			end = len(d)
		}
		if k := bytes.IndexByte(d[i:end], '\r'); k >= 0 && i+k+1 < len(d) && d[i+k+1] != '\n' {
			return -2
		}
		switch {
		case j < 0 || end+1 >= len(d):
			return -1
		case d[end+1] == '\n':
			return end + 2
		case d[end+1] == '\r' && end+2 < len(d) && d[end+2] == '\n':
			return end + 3
		case d[end+1] == '\r' && end+2 == len(d):
			return -1
		}
		i = end + 1
	}
}
