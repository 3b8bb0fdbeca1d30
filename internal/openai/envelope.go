package openai

import (
	"math"
	"strconv"
)

// Envelope is what a router reads of a request. Slices are views into the body that was scanned.
type Envelope struct {
	// Model is what was asked for, before aliases are resolved.
	Model string
	// ModelStart and ModelEnd are where the raw value of "model" stands in the body, quotes included.
	ModelStart, ModelEnd int
	// Stream says that the answer is wanted as server-sent events.
	Stream bool
	// IncludeUsage is stream_options.include_usage.
	IncludeUsage bool
	// MaxTokens is the output limit that was named (max_completion_tokens, max_tokens or max_output_tokens); 0 when
	// none was.
	MaxTokens int
	// N is how many choices were asked for, at least 1.
	N int
	// User is the caller's own end-user id; empty when none was given.
	User string
	// Prompt is the raw value of messages, prompt or input.
	Prompt []byte
	// PromptBytes is the text of the prompt in bytes: strings of messages, prompt, input, instructions and tools,
	// without JSON's own characters.
	PromptBytes int
	// PromptIDs counts token ids where the prompt was given as tokens.
	PromptIDs int
	// Images counts inline images.
	Images int
	// ImageTokens is what they are taken to cost, in prompt tokens.
	ImageTokens int

	optionsStart, optionsEnd int  // where the raw value of stream_options stands in the body; equal when there is none
	oddOptions               bool // as MayAskUsage says
}

// Tokens estimates the prompt's length in tokens.
func (e *Envelope) Tokens(bytesPerToken float64) int {
	if bytesPerToken <= 0 {
		bytesPerToken = 4
	}
	n := int(math.Ceil(float64(e.PromptBytes)/bytesPerToken)) + e.PromptIDs + e.ImageTokens
	return max(n, 1)
}

// Each of the members that a router reads may stand once: engines differ in which of two they take, and a request
// must not mean one thing here and another there.
const (
	seenModel = 1 << iota
	seenStream
	seenOptions
	seenMax
	seenMaxCompletion
	seenN
	seenUser
	seenPrompt
	seenMessages
	seenInput
)

// Scan reads the envelope of body in one pass. It returns an *Error (400) that says what is wrong with the body. The
// Model and User strings of a reused env are kept when they are equal, so that a steady caller costs no allocation.
func Scan(body []byte, env *Envelope) error {
	*env = Envelope{Model: env.Model, User: env.User, N: 1}
	o, ok := open(body)
	if !ok {
		return InvalidJSON("the body is not a JSON object")
	}
	seen := 0
	var model, user bool
	for {
		key, v, ok := o.next()
		if !ok {
			break
		}
		bit, err := env.member(key, v, &o)
		if err != nil {
			return err
		}
		if bit != 0 && seen&bit != 0 {
			return InvalidJSON("the body names a member twice: \"" + string(key) + "\"")
		}
		seen |= bit
		model = model || bit == seenModel
		user = user || bit == seenUser
	}
	if o.bad {
		return InvalidJSON("the body is not well-formed JSON near byte " + strconv.Itoa(o.i))
	}
	if space(body, o.i) != len(body) {
		return InvalidJSON("something follows the JSON object")
	}
	if !user {
		env.User = ""
	}
	if !model || env.Model == "" {
		env.Model = ""
		return ModelRequired()
	}
	return nil
}

// member takes one member into the envelope and returns its seen bit, 0 for members that a router does not read.
func (e *Envelope) member(key, v []byte, o *object) (bit int, err error) {
	switch string(key) {
	case "model":
		if v[0] != '"' {
			return 0, badType("model", "a string")
		}
		e.ModelEnd = o.i
		e.ModelStart = o.i - len(v)
		keep(&e.Model, v)
		return seenModel, nil
	case "stream":
		e.Stream, err = boolean("stream", v)
		return seenStream, err
	case "stream_options":
		e.options(v, o.i)
		return seenOptions, nil
	case "max_tokens":
		err = e.limit("max_tokens", v)
		return seenMax, err
	case "max_completion_tokens", "max_output_tokens":
		err = e.limit("max_completion_tokens", v)
		return seenMaxCompletion, err
	case "n":
		n, err := count("n", v)
		e.N = max(n, 1)
		return seenN, err
	case "user":
		if v[0] == '"' {
			keep(&e.User, v)
		}
		return seenUser, nil
	case "messages":
		e.prompt(v, &o.walk)
		return seenMessages, nil
	case "prompt":
		e.prompt(v, &o.walk)
		return seenPrompt, nil
	case "input":
		e.prompt(v, &o.walk)
		return seenInput, nil
	case "instructions", "tools", "suffix", "system":
		e.PromptBytes += o.walk.text
	}
	return 0, nil
}

func (e *Envelope) prompt(v []byte, w *walk) {
	e.Prompt = v
	e.PromptBytes += w.text
	e.PromptIDs += w.numbers
	e.Images += w.images
	e.ImageTokens += w.pixels
}

// limit takes an output limit. Where two spellings are given, the smaller holds.
func (e *Envelope) limit(key string, v []byte) error {
	n, err := count(key, v)
	if err != nil {
		return err
	}
	if n > 0 && (e.MaxTokens == 0 || n < e.MaxTokens) {
		e.MaxTokens = n
	}
	return nil
}

// keep stores the text of a quoted value, without allocating when it is what dst holds already.
func keep(dst *string, quoted []byte) {
	if text := unescape(quoted); *dst != string(text) {
		*dst = string(text)
	}
}

func boolean(key string, v []byte) (bool, error) {
	switch string(v) {
	case "true":
		return true, nil
	case "false", "null":
		return false, nil
	}
	return false, badType(key, "true or false")
}

// count reads a small whole number; null counts as not given.
func count(key string, v []byte) (int, error) {
	if string(v) == "null" {
		return 0, nil
	}
	if len(v) == 0 || len(v) > 9 {
		return 0, badType(key, "a whole number below 1,000,000,000")
	}
	n := 0
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, badType(key, "a whole number, not negative")
		}
		n = n*10 + int(c-'0')
	}
	return n, nil
}
