package openai

import "bytes"

// maxHeldLine bounds what StreamMeter buffers of a line that is split between chunks, in bytes. The members of
// a longer line are found while it passes: response.completed repeats the whole response before the usage.
const maxHeldLine = 64 << 10

// StreamMeter reads server-sent events as they pass: how many had content, the usage reported by the engine,
// and whether the stream ended properly. Its memory is bounded by one line, and an event costs no allocation.
// The zero value is ready to use.
type StreamMeter struct {
	// Events counts events with content: tokens, for engines that send each separately.
	Events int64
	// Bytes is the number of bytes passed.
	Bytes int64
	// Done is set by "data: [DONE]".
	Done bool
	// Failed is set by an event with an error.
	Failed bool
	// Usage is the last one reported.
	Usage TokenUsage

	partialLine []byte        // the line so far, if a chunk ended inside it
	inLongLine  bool          // inside a line longer than maxHeldLine
	lineFinder  *memberFinder // reads that line; nil before the first
}

// AddChunk processes the next bytes of the stream.
func (m *StreamMeter) AddChunk(p []byte) {
	m.Bytes += int64(len(p))
	for len(p) > 0 {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			m.holdPartialLine(p)
			return
		}
		m.endLine(p[:i])
		p = p[i+1:]
	}
}

func (m *StreamMeter) holdPartialLine(p []byte) {
	if m.inLongLine {
		m.lineFinder.feedBytes(p, (*longLineTarget)(m))
		return
	}
	if len(m.partialLine)+len(p) <= maxHeldLine {
		m.partialLine = append(m.partialLine, p...)
		return
	}
	m.inLongLine = true
	m.Events++
	m.lineFinder = &memberFinder{malformed: true}
	if data, ok := bytes.CutPrefix(m.partialLine, []byte("data:")); ok {
		m.lineFinder.malformed = false
		m.lineFinder.feedBytes(data, (*longLineTarget)(m))
	}
	m.partialLine = m.partialLine[:0]
	m.lineFinder.feedBytes(p, (*longLineTarget)(m))
}

// longLineTarget is the StreamMeter as the finderTarget of long lines.
type longLineTarget StreamMeter

func (m *longLineTarget) wantsMember(key []byte) bool {
	return isUsageMember(key) || m.lineFinder.outerDepth == 0 && (string(key) == "error" || string(key) == "type")
}

func (m *longLineTarget) entersMember(key []byte) bool {
	return string(key) == "response" || string(key) == "message"
}

func (m *longLineTarget) takeMember(key, v []byte) {
	switch string(key) {
	case "error":
		m.Failed = m.Failed || string(v) != "null"
	case "type":
		(*StreamMeter)(m).checkEndType(v)
	default:
		m.Usage.readMember(key, v)
	}
}

// endLine processes the last piece of a line.
func (m *StreamMeter) endLine(p []byte) {
	if m.inLongLine || len(m.partialLine) > 0 {
		m.holdPartialLine(p)
		if !m.inLongLine {
			m.readLine(m.partialLine)
		}
		m.inLongLine, m.partialLine = false, m.partialLine[:0]
		return
	}
	m.readLine(p)
}

func (m *StreamMeter) readLine(l []byte) {
	data, ok := bytes.CutPrefix(l, []byte("data:"))
	if !ok {
		return
	}
	data = bytes.TrimSpace(data)
	if string(data) == "[DONE]" {
		m.Done = true
		return
	}
	o, ok := openObject(data)
	if !ok {
		return
	}
	for {
		key, v, ok := o.nextMember()
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
			m.readEventType(v)
		case "response", "message":
			m.readResponse(v)
		case "token", "content": // a native event of TGI or llama.cpp
			if v[0] == '{' || v[0] == '"' && len(v) > 2 {
				m.Events++
			}
		default:
			m.Usage.readMember(key, v)
		}
	}
}

// readEventType reads the type of an event of /v1/responses.
func (m *StreamMeter) readEventType(v []byte) {
	if bytes.HasSuffix(v, []byte(`.delta"`)) || string(v) == `"content_block_delta"` {
		m.Events++
	}
	m.checkEndType(v)
}

// checkEndType processes the type of an event that ends a stream.
func (m *StreamMeter) checkEndType(v []byte) {
	switch string(v) {
	case `"response.completed"`, `"response.incomplete"`, `"message_stop"`:
		m.Done = true
	case `"response.failed"`, `"error"`:
		m.Failed = true
	}
}

// readResponse reads the usage in the last event of /v1/responses, or in the first of /v1/messages.
func (m *StreamMeter) readResponse(v []byte) {
	o, ok := openObject(v)
	if !ok {
		return
	}
	for {
		key, v, ok := o.nextMember()
		if !ok {
			return
		}
		if string(key) == "usage" {
			m.Usage.readUsageObject(v)
		}
	}
}

// hasContent reports whether choices have text. Quotes inside a JSON string are escaped, so the patterns can
// only match members.
func hasContent(choices []byte) bool {
	return hasFilledMember(choices, `"content":`) || hasFilledMember(choices, `"text":`) || hasFilledMember(choices, `"reasoning_content":`) ||
		hasFilledMember(choices, `"reasoning":`) || hasFilledMember(choices, `"arguments":`)
}

func hasFilledMember(d []byte, member string) bool {
	for {
		i := bytes.Index(d, []byte(member))
		if i < 0 {
			return false
		}
		d = d[i+len(member):]
		j := skipSpace(d, 0)
		if j+1 < len(d) && d[j] == '"' && d[j+1] != '"' {
			return true
		}
	}
}
