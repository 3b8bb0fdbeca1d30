package resume

import (
	"bytes"
	"strconv"

	"github.com/spillway-lb/spillway/internal/openai"
)

// event is what a seam reads of one server-sent event. Spans are places in the event.
type event struct {
	comment, done, failed bool
	declined              bool // failed, and the error is the client's: another worker would answer the same

	id, created, model, print span // raw values of the object's own members
	choices, delta, content   span // content is quoted, of a chat or of a completion
	finish                    span // of a reason that is not null
	usage                     span // of an object
	empty                     bool // choices is []
	more                      bool // there is something besides text
}

func (s span) of(d []byte) []byte { return d[s.at:s.end] }
func (s span) there() bool        { return s.end > s.at }

// read takes an event apart; false when it is not what engines send.
func (e *event) read(ev []byte) bool {
	*e = event{}
	body := bytes.TrimRight(ev, "\r\n")
	if len(body) == 0 || body[0] == ':' && bytes.IndexByte(body, '\n') < 0 {
		e.comment = true
		return true
	}
	data, ok := bytes.CutPrefix(body, []byte("data:"))
	if !ok || bytes.IndexByte(data, '\n') >= 0 || bytes.IndexByte(data, '\r') >= 0 {
		return false
	}
	at := len(body) - len(data)
	if string(bytes.TrimSpace(data)) == "[DONE]" {
		e.done = true
		return true
	}
	m, ok := openai.OpenMembers(data)
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		if !e.member(string(key), v, span{at + m.End() - len(v), at + m.End()}) {
			return false
		}
	}
	e.declined = e.declined && e.failed
	return m.Whole()
}

// clientError reports whether an error object blames the request: its code is an HTTP status 4xx or, where it names no
// status, its type is that of an invalid request.
func clientError(v []byte) bool {
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
	if m.Broken() {
		return false
	}
	if status != 0 {
		return status/100 == 4
	}
	return typed
}

func (e *event) member(key string, v []byte, s span) bool {
	switch key {
	case "id":
		e.id = s
	case "created":
		e.created = s
	case "model":
		e.model = s
	case "system_fingerprint":
		e.print = s
	case "usage":
		if v[0] == '{' {
			e.usage = s
		}
	case "error":
		e.failed = e.failed || string(v) != "null"
		e.declined = e.declined || clientError(v)
	case "error_type": // TGI
		e.declined = e.declined || string(v) == `"validation"`
	case "choices":
		e.choices = s
		return e.choice(v, s.at)
	}
	return true
}

// choice reads the one choice of an event.
func (e *event) choice(v []byte, at int) bool {
	list, ok := openai.OpenElements(v)
	if !ok {
		return false
	}
	c, ok := list.Next()
	if !ok {
		e.empty = !list.Broken()
		return e.empty
	}
	at += list.End() - len(c)
	if _, more := list.Next(); more {
		return false
	}
	m, ok := openai.OpenMembers(c)
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		s := span{at + m.End() - len(v), at + m.End()}
		switch string(key) {
		case "index":
			ok = string(v) == "0"
		case "text":
			ok = v[0] == '"'
			e.content = s
		case "finish_reason":
			if v[0] == '"' {
				e.finish = s
			}
		case "logprobs":
			e.more = e.more || string(v) != "null"
		case "delta":
			e.delta = s
			ok = e.fragment(v, s.at)
		}
		if !ok {
			return false
		}
	}
	return !m.Broken() && !list.Broken()
}

// fragment reads the delta of a chat.
func (e *event) fragment(v []byte, at int) bool {
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
				e.content = span{at + m.End() - len(v), at + m.End()}
			} else if string(v) != "null" {
				e.more = true
			}
		default:
			e.more = e.more || !nothing(v)
		}
	}
	return !m.Broken()
}

// text is the escaped inside of the event's content.
func (e *event) text(ev []byte) []byte {
	if !e.content.there() {
		return nil
	}
	return ev[e.content.at+1 : e.content.end-1]
}

// restate gives the amounts of the usage object in d other values.
func restate(d []byte, s span, u openai.Usage) []edit {
	var edits []edit
	m, ok := openai.OpenMembers(s.of(d))
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
			edits = append(edits, edit{span{s.at + m.End() - len(v), s.at + m.End()}, strconv.AppendInt(nil, int64(n), 10)})
		}
	}
	return edits
}
