package openai

import "bytes"

// maxLine bounds what StreamMeter holds of a line that is split between chunks. Of a longer line the members are looked for
// as they pass: response.completed repeats the whole answer before it states the usage.
const maxLine = 64 << 10

// StreamMeter reads server-sent events as they pass: how many carried content, what usage the engine stated, and
// whether the stream ended as it should. Its memory is bounded by one line, and an event costs no allocation. The zero
// value is ready.
type StreamMeter struct {
	// Events counts events that carried content: tokens, for engines that send each by itself.
	Events int64
	// Bytes that passed.
	Bytes int64
	// Done is set by "data: [DONE]".
	Done bool
	// Failed is set by an event that carries an error.
	Failed bool
	// Usage is the last that was stated.
	Usage Usage

	part []byte  // the line so far, when a chunk ended inside it
	long bool    // inside a line that is longer than maxLine
	rest *finder // reads that; nil before the first
}

// Chunk takes the next bytes of the stream.
func (m *StreamMeter) Chunk(p []byte) {
	m.Bytes += int64(len(p))
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			m.hold(p)
			return
		}
		m.end(p[:i])
		p = p[i+1:]
	}
}

func (m *StreamMeter) hold(p []byte) {
	if m.long {
		m.rest.feed(p, (*longLine)(m))
		return
	}
	if len(m.part)+len(p) <= maxLine {
		m.part = append(m.part, p...)
		return
	}
	m.long = true
	m.Events++
	m.rest = &finder{dead: true}
	if data, ok := bytes.CutPrefix(m.part, []byte("data:")); ok {
		m.rest.dead = false
		m.rest.feed(data, (*longLine)(m))
	}
	m.part = m.part[:0]
	m.rest.feed(p, (*longLine)(m))
}

// longLine is a StreamMeter as the finder of its long lines sees it.
type longLine StreamMeter

func (m *longLine) wants(key []byte) bool {
	return isUsage(key) || m.rest.inner == 0 && (string(key) == "error" || string(key) == "type")
}

func (m *longLine) enters(key []byte) bool {
	return string(key) == "response" || string(key) == "message"
}

func (m *longLine) found(key, v []byte) {
	switch string(key) {
	case "error":
		m.Failed = m.Failed || string(v) != "null"
	case "type":
		(*StreamMeter)(m).ends(v)
	default:
		m.Usage.member(key, v)
	}
}

// end takes the last piece of a line.
func (m *StreamMeter) end(p []byte) {
	if m.long || len(m.part) > 0 {
		m.hold(p)
		if !m.long {
			m.line(m.part)
		}
		m.long, m.part = false, m.part[:0]
		return
	}
	m.line(p)
}

func (m *StreamMeter) line(l []byte) {
	data, ok := bytes.CutPrefix(l, []byte("data:"))
	if !ok {
		return
	}
	data = bytes.TrimSpace(data)
	if string(data) == "[DONE]" {
		m.Done = true
		return
	}
	o, ok := open(data)
	if !ok {
		return
	}
	for {
		key, v, ok := o.next()
		if !ok {
			return
		}
		switch string(key) {
		case "choices":
			if hasContent(v) {
				m.Events++
			}
		case "error":
			m.Failed = m.Failed || string(v) != "null"
		case "type":
			m.typed(v)
		case "response", "message":
			m.response(v)
		case "token", "content": // an event of TGI's own, and of llama.cpp's
			if v[0] == '{' || v[0] == '"' && len(v) > 2 {
				m.Events++
			}
		default:
			m.Usage.member(key, v)
		}
	}
}

// typed reads the type of an event of /v1/responses.
func (m *StreamMeter) typed(v []byte) {
	if bytes.HasSuffix(v, []byte(`.delta"`)) || string(v) == `"content_block_delta"` {
		m.Events++
	}
	m.ends(v)
}

// ends takes the type of an event that ends a stream.
func (m *StreamMeter) ends(v []byte) {
	switch string(v) {
	case `"response.completed"`, `"response.incomplete"`, `"message_stop"`:
		m.Done = true
	case `"response.failed"`, `"error"`:
		m.Failed = true
	}
}

// response reads the usage inside the last event of /v1/responses, or the first of /v1/messages.
func (m *StreamMeter) response(v []byte) {
	o, ok := open(v)
	if !ok {
		return
	}
	for {
		key, v, ok := o.next()
		if !ok {
			return
		}
		if string(key) == "usage" {
			m.Usage.read(v)
		}
	}
}

// hasContent reports whether choices carry text. Inside a JSON string a quote is escaped, so that the patterns can only
// match members.
func hasContent(choices []byte) bool {
	return filled(choices, `"content":`) || filled(choices, `"text":`) || filled(choices, `"reasoning_content":`) ||
		filled(choices, `"reasoning":`) || filled(choices, `"arguments":`)
}

func filled(d []byte, member string) bool {
	for {
		i := bytes.Index(d, []byte(member))
		if i < 0 {
			return false
		}
		d = d[i+len(member):]
		j := space(d, 0)
		if j+1 < len(d) && d[j] == '"' && d[j+1] != '"' {
			return true
		}
	}
}
