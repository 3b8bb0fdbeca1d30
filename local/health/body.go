package health

import (
	"bytes"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/spillway-lb/spillway/internal/openai"
)

// broken are the marks of an answer from a worker whose GPU or engine is gone, and exhausted those of one whose memory
// ran out, in lower case.
var (
	broken = [...][]byte{
		[]byte("cuda error"), []byte("device-side assert"), []byte("nccl error"), []byte("engine core"), []byte("enginedeaderror"),
		[]byte("uncorrectable ecc"), []byte("illegal memory access"), []byte("hip error"),
	}
	exhausted = [...][]byte{
		[]byte("cuda out of memory"), []byte("outofmemoryerror"), []byte("cuda error: out of memory"), []byte("hip out of memory"),
	}
)

// maxFields bounds the text of an error answer that is searched for marks, in bytes.
const maxFields = 4096

// Classify tells from an error answer what it says of the worker. ok is false when it says nothing: the answer is the
// request's own fault or an ordinary refusal.
//
// Marks are looked for in the first 4 KiB of the engine's own error fields, or of a body that is plain text. An engine may
// quote the request in its errors, so a mark does not count if the request holds its words too, or if the request's text is
// not known: request nil, or a prompt of token ids.
func Classify(status int, body, request []byte) (k Kind, ok bool) {
	if status < 500 {
		return 0, false
	}
	if k, ok := deadly(errorFields(body), request); ok {
		return k, true
	}
	if status == 503 || status == 529 {
		return 0, false
	}
	return Soft, true
}

// deadly is the kind of the first mark in text that cannot come from the request.
func deadly(text, request []byte) (k Kind, ok bool) {
	marks := slices.Concat(exhausted[:], broken[:])
	i := slices.IndexFunc(marks, func(m []byte) bool { return bytes.Contains(text, m) })
	if i < 0 || len(request) == 0 || holdsTokenIDs(request) {
		return 0, false
	}
	quoted := bytes.ToLower(slices.Concat(request, []byte{'\n'}, unescape(request)))
	for i, m := range marks {
		if !bytes.Contains(text, m) || holdsWords(quoted, m) {
			continue
		}
		if i < len(exhausted) {
			return OOM, true
		}
		return Broken, true
	}
	return 0, false
}

// holdsWords reports whether text holds every word of a mark, in any order and at any distance: parts of a message may come
// together in a quotation.
func holdsWords(text, mark []byte) bool {
	for w := range bytes.FieldsSeq(mark) {
		if !bytes.Contains(text, w) {
			return false
		}
	}
	return true
}

// errorFields is the text of an error answer's own fields, in lower case: the members of {"error": {...}}, or those of the
// answer itself. A body that is no JSON object is taken whole.
func errorFields(body []byte) []byte {
	m, ok := openai.OpenMembers(body)
	if !ok {
		return bytes.ToLower(body[:min(len(body), maxFields)])
	}
	var out []byte
	for ok && len(out) < maxFields {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		switch string(key) {
		case "message", "error", "detail", "type", "error_type", "code":
			if v[0] == '"' {
				out = append(append(out, openai.Text(v)...), '\n')
			} else if v[0] == '{' && string(key) == "error" {
				out = append(out, errorFields(v)...)
			}
		}
	}
	return bytes.ToLower(out[:min(len(out), maxFields)])
}

// holdsTokenIDs reports whether the prompt of a request is given as numbers.
func holdsTokenIDs(request []byte) bool {
	m, ok := openai.OpenMembers(request)
	for ok {
		var key, v []byte
		if key, v, ok = m.Next(); !ok {
			break
		}
		switch string(key) {
		case "prompt", "input", "input_ids", "prompt_token_ids":
			v = bytes.TrimLeft(v, "[ \t\r\n")
			if len(v) > 0 && v[0] >= '0' && v[0] <= '9' {
				return true
			}
		}
	}
	return false
}

// unescape replaces the escapes of JSON strings by what they stand for, wherever they are.
func unescape(d []byte) []byte {
	if bytes.IndexByte(d, '\\') < 0 {
		return d
	}
	out := make([]byte, 0, len(d))
	for i := 0; i < len(d); i++ {
		if d[i] != '\\' || i+1 == len(d) {
			out = append(out, d[i])
			continue
		}
		i++
		switch d[i] {
		case 'u':
			if n, err := strconv.ParseUint(string(d[i+1:min(i+5, len(d))]), 16, 16); err == nil {
				out = utf8.AppendRune(out, rune(n))
				i += 4
			}
		case 'n', 't', 'r', 'b', 'f':
			out = append(out, ' ')
		default:
			out = append(out, d[i])
		}
	}
	return out
}
