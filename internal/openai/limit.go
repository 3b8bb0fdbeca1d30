package openai

import (
	"bytes"
	"math"
	"slices"
	"strconv"
)

// limitSpan is where a body sets its output limit, or where one can be inserted.
type limitSpan struct {
	named          bool // a limit is set
	start, end     int  // span of its raw value, or of a null; equal if there is none
	paramsStart    int  // start of the object that holds the path's limit, if that is not the body; else 0
	paramsNonEmpty bool // that object has members
}

// The names of the output limit, by shape. The first is the one that is inserted.
var (
	chatLimits      = []string{"max_tokens", "max_completion_tokens"}
	messagesLimits  = []string{"max_tokens"}
	responsesLimits = []string{"max_output_tokens"}
	llamaLimits     = []string{"n_predict", "max_tokens", "max_completion_tokens"}
	ollamaLimits    = []string{"num_predict"}
	nativeLimits    = []string{"max_new_tokens"}
)

// bodyLimits returns the names of the limit in the body itself.
func bodyLimits(shape Shape) []string {
	switch shape {
	case ShapeResponses:
		return responsesLimits
	case ShapeMessages:
		return messagesLimits
	case ShapeLlamaCPP:
		return llamaLimits
	case ShapeOllama, ShapeNative:
		return nil
	}
	return chatLimits
}

// nestedLimits returns its names in the object of engine parameters. SGLang's /generate has it in
// sampling_params, TGI's in parameters.
func nestedLimits(shape Shape) []string {
	switch shape {
	case ShapeOllama:
		return ollamaLimits
	case ShapeNative:
		return nativeLimits
	case ShapeGenerate:
		return messagesLimits
	}
	return nil
}

// readLimit reads an output limit in the body itself. Names of other paths are ignored, as engines do, except
// n_predict: llama.cpp applies it on every path.
func (e *Envelope) readLimit(shape Shape, member int, v []byte, end int) error {
	name := memberNames[member]
	if slices.Contains(bodyLimits(shape), name) {
		return e.readNamedLimit(name, v, end)
	}
	if member != memberNPredict {
		return nil
	}
	n, err := parseSignedCount(name, v)
	e.ForeignLimit = max(n, -1)
	return err
}

// readNamedLimit reads the path's own limit. Two different limits are refused: engines differ in which they
// use.
func (e *Envelope) readNamedLimit(name string, v []byte, end int) error {
	n, err := parseSignedCount(name, v)
	if err != nil {
		return err
	}
	if n < 0 && name != "n_predict" && name != "num_predict" {
		return wrongType(name, "a whole number, not negative")
	}
	null := string(v) == "null"
	if e.limit.named && !null && n != e.MaxTokens {
		return conflictingLimits(name)
	}
	if !e.limit.named {
		e.limit.start, e.limit.end = end-len(v), end
	}
	if !null {
		e.limit.named, e.MaxTokens = true, n
	}
	return nil
}

func conflictingLimits(name string) *Error {
	return invalidRequest(400, CodeInvalidValue, name, "the body names two output limits that differ: leave one out")
}

// readEngineParams reads the object with the parameters of an engine's own path. It ends at end in the body.
func (e *Envelope) readEngineParams(shape Shape, key string, v []byte, end int) error {
	start := end - len(v)
	o, ok := openObject(v)
	if !ok || e.limit.paramsStart > 0 {
		return invalidRequest(400, CodeInvalidValue, key, `"`+key+`" must be the one object of the engine's parameters`)
	}
	e.limit.paramsStart = start + 1
	names := nestedLimits(shape)
	seen := false
	for {
		key, v, ok := o.nextMember()
		if !ok {
			return nil // a syntax error in it is found with the body
		}
		e.limit.paramsNonEmpty = true
		name := string(key)
		switch {
		case slices.Contains(names, name):
			if seen {
				return InvalidJSON("the body names a member twice: \"" + name + "\"")
			}
			seen = true
			if err := e.readNamedLimit(name, v, start+o.pos); err != nil {
				return err
			}
		case (name == "adapter_id" || name == "lora_name") && string(v) != "null":
			return invalidRequest(400, CodeInvalidValue, name, `an adapter is chosen by its name in "model": leave "`+name+`" out`)
		}
		if err := checkMemberCase(key); err != nil {
			return err
		}
	}
}

// finishLimit finishes the limit: a negative one means none.
func (e *Envelope) finishLimit() error {
	e.MaxTokens = max(e.MaxTokens, 0)
	if e.ForeignLimit != 0 && e.MaxTokens != 0 && e.ForeignLimit != e.MaxTokens {
		return conflictingLimits(memberNames[memberNPredict])
	}
	return nil
}

// ExceedsOutputLimit reports whether a request asks for more than limit output tokens, and for how many.
func (e *Envelope) ExceedsOutputLimit(limit int) (asked int, exceeds bool) {
	switch {
	case limit <= 0:
		return 0, false
	case e.ForeignLimit < 0:
		return math.MaxInt32, true
	}
	asked = max(e.MaxTokens, e.ForeignLimit)
	return asked, asked > limit
}

// SetOutputLimit sets the output limit of a request, replacing the one in the body if there is one. env is the
// envelope of the original body.
func (w *EditedBody) SetOutputLimit(shape Shape, env *Envelope, tokens int) {
	n := strconv.Itoa(tokens)
	at := bytes.LastIndexByte(w.raw, '}')
	if env.limit.start < env.limit.end {
		w.addEdit(env.limit.start, env.limit.end, n)
		return
	}
	if at < 0 || env.isForm {
		return
	}
	text := ""
	switch shape {
	case ShapeOllama, ShapeNative:
		text = `"` + nestedLimits(shape)[0] + `":` + n
		if env.limit.paramsStart > 0 {
			if env.limit.paramsNonEmpty {
				text += ","
			}
			w.addEdit(env.limit.paramsStart, env.limit.paramsStart, text)
			return
		}
		if shape == ShapeOllama {
			text = `"options":{` + text + `}`
		} else {
			text = `"sampling_params":{` + text + `},"parameters":{` + text + `}`
		}
	default:
		text = `"` + bodyLimits(shape)[0] + `":` + n
	}
	if !env.isEmpty {
		text = "," + text
	}
	w.addEdit(at, at, text)
}

// parseSignedCount parses a small whole number that may be negative; null is 0.
func parseSignedCount(key string, v []byte) (int, error) {
	if len(v) > 1 && v[0] == '-' {
		n, err := parseCount(key, v[1:])
		return -n, err
	}
	return parseCount(key, v)
}
