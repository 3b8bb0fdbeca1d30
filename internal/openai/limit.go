package openai

import (
	"bytes"
	"math"
	"slices"
	"strconv"
)

// limitPlace is where a body names its output limit, or where one may be put.
type limitPlace struct {
	set        bool // a limit is named
	start, end int  // the raw value of that, or of a null in its place; equal when there is none
	inside     int  // the beginning of the object that holds the path's limit, where that is not the body; 0 when there is none
	more       bool // that object has members
}

// The names of the output limit, by the shape of the path. The first is the one that is put in.
var (
	chatLimits      = []string{"max_tokens", "max_completion_tokens"}
	messagesLimits  = []string{"max_tokens"}
	responsesLimits = []string{"max_output_tokens"}
	llamaLimits     = []string{"n_predict", "max_tokens", "max_completion_tokens"}
	ollamaLimits    = []string{"num_predict"}
	nativeLimits    = []string{"max_new_tokens"}
)

// bodyLimits are the names of the limit in the body itself.
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

// nestedLimits are its names in the object of the engine's parameters. SGLang's /generate has that in sampling_params,
// TGI's in parameters.
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

// limited takes an output limit that is named in the body itself. A name that is not the path's own says nothing, because
// engines pass over it, but for n_predict: llama.cpp takes that on every path.
func (e *Envelope) limited(shape Shape, member int, v []byte, end int) error {
	name := members[member]
	if slices.Contains(bodyLimits(shape), name) {
		return e.named(name, v, end)
	}
	if member != atNPredict {
		return nil
	}
	n, err := signed(name, v)
	e.Foreign = max(n, -1)
	return err
}

// named takes the path's own limit. Two that differ are refused: engines differ in which they take.
func (e *Envelope) named(name string, v []byte, end int) error {
	n, err := signed(name, v)
	if err != nil {
		return err
	}
	if n < 0 && name != "n_predict" && name != "num_predict" {
		return badType(name, "a whole number, not negative")
	}
	null := string(v) == "null"
	if e.limit.set && !null && n != e.MaxTokens {
		return limitsDiffer(name)
	}
	if !e.limit.set {
		e.limit.start, e.limit.end = end-len(v), end
	}
	if !null {
		e.limit.set, e.MaxTokens = true, n
	}
	return nil
}

func limitsDiffer(name string) *Error {
	return invalid(400, CodeInvalidValue, name, "the body names two output limits that differ: leave one out")
}

// nested reads the object in which an engine's own path has its parameters. It ends at end in the body.
func (e *Envelope) nested(shape Shape, key string, v []byte, end int) error {
	start := end - len(v)
	o, ok := open(v)
	if !ok || e.limit.inside > 0 {
		return invalid(400, CodeInvalidValue, key, `"`+key+`" must be the one object of the engine's parameters`)
	}
	e.limit.inside = start + 1
	names := nestedLimits(shape)
	seen := false
	for {
		key, v, ok := o.next()
		if !ok {
			return nil // what is broken in it is found with the body
		}
		e.limit.more = true
		name := string(key)
		switch {
		case slices.Contains(names, name):
			if seen {
				return InvalidJSON("the body names a member twice: \"" + name + "\"")
			}
			seen = true
			if err := e.named(name, v, start+o.i); err != nil {
				return err
			}
		case (name == "adapter_id" || name == "lora_name") && string(v) != "null":
			return invalid(400, CodeInvalidValue, name, `an adapter is chosen by its name in "model": leave "`+name+`" out`)
		}
		if err := foldsToMember(key); err != nil {
			return err
		}
	}
}

// settleLimit ends the reading of the limit: one that is negative is none.
func (e *Envelope) settleLimit() error {
	e.MaxTokens = max(e.MaxTokens, 0)
	if e.Foreign != 0 && e.MaxTokens != 0 && e.Foreign != e.MaxTokens {
		return limitsDiffer(members[atNPredict])
	}
	return nil
}

// Exceeds reports whether a request asks for more output tokens than limit, and how many it asks for.
func (e *Envelope) Exceeds(limit int) (asked int, exceeds bool) {
	switch {
	case limit <= 0:
		return 0, false
	case e.Foreign < 0:
		return math.MaxInt32, true
	}
	asked = max(e.MaxTokens, e.Foreign)
	return asked, asked > limit
}

// SetLimit gives a request of a shape an output limit, in the place of the one that the body names if it names one. env is
// the envelope of the body as it came.
func (w *Wording) SetLimit(shape Shape, env *Envelope, tokens int) {
	n := strconv.Itoa(tokens)
	at := bytes.LastIndexByte(w.raw, '}')
	if env.limit.start < env.limit.end {
		w.edit(env.limit.start, env.limit.end, n)
		return
	}
	if at < 0 || env.form {
		return
	}
	text := ""
	switch shape {
	case ShapeOllama, ShapeNative:
		text = `"` + nestedLimits(shape)[0] + `":` + n
		if env.limit.inside > 0 {
			if env.limit.more {
				text += ","
			}
			w.edit(env.limit.inside, env.limit.inside, text)
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
	if !env.empty {
		text = "," + text
	}
	w.edit(at, at, text)
}

// signed reads a small whole number that may be negative; null is 0.
func signed(key string, v []byte) (int, error) {
	if len(v) > 1 && v[0] == '-' {
		n, err := count(key, v[1:])
		return -n, err
	}
	return count(key, v)
}
