package openai

import "bytes"

// maxHeld bounds what Unasked holds of an event that is split between chunks, in bytes. A usage event is far smaller: a
// longer one is passed on as it comes.
const maxHeld = 16 << 10

// Unasked takes out of a stream what an engine added because we asked for its usage and the client did not: the one event
// whose "choices" are empty and which states "usage". The "usage":null that OpenAI, SGLang and older vLLM write into every
// other event then stays: clients know it, and taking it out would mean writing each event anew. Newer vLLM and llama.cpp
// write none; llama.cpp's "timings" move into the usage event and go with it.
//
// Everything else passes unchanged and at once: only an event that is not yet whole is held. What is not surely such an
// event (a second field beside its one data line, an error, broken JSON) is passed. Lines may end with LF, CRLF or CR.
// The zero value is ready; once its buffers have grown, it allocates nothing.
type Unasked struct {
	held  []byte // the event so far, when a chunk ended inside it
	out   []byte
	text  bool // the current line holds something
	cr    bool // the last byte was a CR, to which an LF may belong
	gone  bool // the event that ended last was taken out
	loose bool // the current event is passed as it comes: it is longer than is held
}

// Pass returns what of the next bytes of the stream goes to the client, valid until the next call.
func (f *Unasked) Pass(p []byte) []byte {
	f.out = f.out[:0]
	if f.cr && len(f.held) == 0 && !f.loose && len(p) > 0 && p[0] == '\n' { // the rest of the last event's end
		if !f.gone {
			f.out = append(f.out, '\n')
		}
		f.cr, p = false, p[1:]
	}
	for len(p) > 0 {
		n, whole := f.cut(p)
		f.take(p[:n], whole)
		p = p[n:]
	}
	return f.out
}

// Rest is what is held of an event that never became whole, for a stream that has ended.
func (f *Unasked) Rest() []byte { return f.held }

// cut returns how many bytes of p belong to the current event, and whether it ends with them.
func (f *Unasked) cut(p []byte) (n int, whole bool) {
	i := 0
	if f.cr && p[0] == '\n' {
		i = 1
	}
	f.cr = false
	for i < len(p) {
		j := lineBreak(p[i:])
		if j < 0 {
			f.text = true
			break
		}
		blank := j == 0 && !f.text
		f.text = false
		i += j + 1
		if p[i-1] == '\r' {
			f.cr = i == len(p)
			if !f.cr && p[i] == '\n' {
				i++
			}
		}
		if blank {
			return i, true
		}
	}
	return len(p), false
}

// take passes a piece of the current event, holds it, or takes the event out.
func (f *Unasked) take(piece []byte, whole bool) {
	if !whole && !f.loose {
		if len(f.held)+len(piece) <= maxHeld {
			f.held = append(f.held, piece...)
			return
		}
		f.loose = true
	}
	f.gone = !f.loose && f.usage(piece)
	if !f.gone {
		f.out = append(append(f.out, f.held...), piece...)
	}
	f.held = f.held[:0]
	f.loose = f.loose && !whole
}

// usage reports whether the event that ends with piece states usage and nothing else.
func (f *Unasked) usage(piece []byte) bool {
	if len(f.held)+len(piece) > maxHeld {
		return false
	}
	if len(f.held) > 0 {
		n := len(f.held)
		piece = append(f.held, piece...)
		f.held = piece[:n]
	}
	data, ok := bytes.CutPrefix(bytes.TrimRight(piece, "\r\n"), []byte("data:"))
	return ok && mayName(data, "usage") && lineBreak(data) < 0 && onlyUsage(data)
}

// lineBreak is where the first CR or LF is; -1 when there is none.
func lineBreak(p []byte) int {
	n := bytes.IndexByte(p, '\n')
	if n < 0 {
		return bytes.IndexByte(p, '\r')
	}
	if r := bytes.IndexByte(p[:n], '\r'); r >= 0 {
		return r
	}
	return n
}

// mayName says whether a key of letters can stand in data, as it is or with letters escaped. It costs a fraction of what it
// does to look.
func mayName(data []byte, key string) bool {
	return bytes.Contains(data, []byte(key)) || bytes.Contains(data, []byte(`\u`))
}

// onlyUsage reports whether an event's data is an object with empty choices and a usage.
func onlyUsage(data []byte) bool {
	m, ok := OpenMembers(data)
	empty, stated := false, false
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		switch string(key) {
		case "choices":
			if empty = len(v) > 1 && v[0] == '[' && space(v, 1) == len(v)-1; !empty {
				return false
			}
		case "usage":
			stated = v[0] == '{'
		case "error":
			return false
		}
	}
	return empty && stated && m.Whole()
}
