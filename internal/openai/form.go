package openai

import (
	"bytes"
	"strings"
)

// audioBytesPerToken is the assumed size of a token of audio, in bytes: speech at 64 kbit/s and 12.5 tokens/s.
// The counts of an engine replace it.
const audioBytesPerToken = 640

// maxFormParts bounds the fields of a form.
const maxFormParts = 256

// IsForm reports whether a Content-Type is multipart/form-data.
func IsForm(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(kind), "multipart/form-data")
}

// ScanForm parses the envelope of a form (RFC 7578). Only one syntax is accepted, so that no engine's parser
// finds another model: no text before the first boundary or after the last, CRLF line ends, one
// Content-Disposition per part with one plain name, and the boundary only between parts.
func ScanForm(shape Shape, contentType string, body []byte, env *Envelope) error {
	*env = Envelope{Model: env.Model, N: 1, isForm: true}
	boundary, ok := parseBoundary(contentType)
	if !ok {
		return invalidForm("the Content-Type names no plain boundary")
	}
	rest, ok := bytes.CutPrefix(body, []byte(boundary[2:]+"\r\n")) // the first boundary has no preceding line end
	if !ok {
		return invalidForm("it does not begin with its boundary")
	}
	named := false
	for range maxFormParts {
		head, content, ok := bytes.Cut(rest, []byte("\r\n\r\n"))
		if !ok {
			return invalidForm("a part has no end of its head")
		}
		end := bytes.Index(content, []byte(boundary))
		if end < 0 || bytes.Contains(content[:end], []byte(boundary[2:])) {
			return invalidForm("a part is not ended by a line with the boundary")
		}
		name, file, ok := parsePartHead(head)
		if !ok {
			return invalidForm("a part's Content-Disposition is not written as form-data with one plain name")
		}
		at := len(body) - len(content)
		if name == "model" {
			if named || file {
				return invalidForm("it must name its model once, and not as a file")
			}
			named, env.ModelStart, env.ModelEnd = true, at, at+end
			if string(content[:end]) != env.Model {
				env.Model = string(content[:end])
			}
		} else if err := checkMemberCase([]byte(name)); err != nil {
			return err
		}
		if err := env.readFormField(shape, name, file, content[:end]); err != nil {
			return err
		}
		rest = content[end+len(boundary):]
		if tail, last := bytes.CutPrefix(rest, []byte("--")); last {
			if len(tail) > 0 && string(tail) != "\r\n" {
				return invalidForm("something follows its last boundary")
			}
			if !named {
				env.Model = ""
			}
			if env.Model == "" && !shape.ModelOptional() {
				e := ModelRequired()
				e.Message = "name a model in the form's field \"model\""
				return e
			}
			return nil
		}
		if rest, ok = bytes.CutPrefix(rest, []byte("\r\n")); !ok {
			return invalidForm("a boundary is followed by other text")
		}
	}
	return invalidForm("it has too many parts")
}

// readFormField adds the cost of a field.
func (e *Envelope) readFormField(shape Shape, name string, file bool, content []byte) (err error) {
	switch {
	case file && shape == ShapeTranscription:
		e.PromptIDs += (len(content) + audioBytesPerToken - 1) / audioBytesPerToken
	case file:
		e.Images++
		e.ImageTokens += generatedImageTokens
	case name == "prompt":
		e.PromptBytes += len(content)
	case name == "n":
		if e.N, err = parseCount("n", content); e.N == 0 {
			e.N = 1
		}
	case name == "stream":
		e.Stream = strings.EqualFold(string(content), "true")
	}
	return err
}

func invalidForm(why string) *Error {
	return invalidRequest(400, CodeInvalidValue, "", "the form cannot be read: "+why)
}

// parseBoundary returns the separator of parts: a line end, two dashes and the boundary.
func parseBoundary(contentType string) (string, bool) {
	_, params, _ := strings.Cut(contentType, ";")
	name, value, ok := strings.Cut(strings.TrimSpace(params), "=")
	if !ok || !strings.EqualFold(name, "boundary") {
		return "", false
	}
	if len(value) > 2 && value[0] == '"' && value[len(value)-1] == '"' {
		value = value[1 : len(value)-1]
	}
	if value == "" || len(value) > 70 {
		return "", false
	}
	for i := range len(value) {
		switch c := value[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("'()+_-./:=?", c) >= 0:
		default:
			return "", false
		}
	}
	return "\r\n--" + value, true
}

// parsePartHead parses the head of a part.
func parsePartHead(head []byte) (name string, file, ok bool) {
	found := false
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		key, value, colon := strings.Cut(string(line), ":")
		if !colon || key == "" || strings.ContainsAny(key, " \t\r\n") || strings.ContainsAny(value, "\r\n\x00") {
			return "", false, false
		}
		switch strings.ToLower(key) {
		case "content-disposition":
			if found {
				return "", false, false
			}
			found = true
			if name, file, ok = parseDisposition(strings.TrimSpace(value)); !ok {
				return "", false, false
			}
		case "content-transfer-encoding":
			if v := strings.ToLower(strings.TrimSpace(value)); v != "binary" && v != "8bit" && v != "7bit" {
				return "", false, false
			}
		}
	}
	return name, file, found
}

// parseDisposition parses form-data; name="NAME", with an optional filename after it. A backslash is refused:
// parsers differ in its meaning inside quotes.
func parseDisposition(v string) (name string, file, ok bool) {
	v, ok = strings.CutPrefix(v, "form-data")
	if !ok || strings.Contains(v, `\`) {
		return "", false, false
	}
	for v != "" {
		if v, ok = strings.CutPrefix(strings.TrimLeft(v, " "), ";"); !ok {
			return "", false, false
		}
		var key, value string
		if key, v, ok = strings.Cut(strings.TrimLeft(v, " "), "="); !ok {
			return "", false, false
		}
		if quoted, is := strings.CutPrefix(v, `"`); is {
			if value, v, ok = strings.Cut(quoted, `"`); !ok {
				return "", false, false
			}
		} else {
			at := strings.IndexByte(v, ';')
			if at < 0 {
				at = len(v)
			}
			value, v = strings.TrimRight(v[:at], " "), v[at:]
		}
		switch {
		case key == "name" && name == "" && value != "":
			name = value
		case key == "filename" || key == "filename*":
			file = true
		default:
			return "", false, false
		}
	}
	return name, file, name != ""
}
