package openai

import (
	"math"
	"strconv"
	"strings"
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
	// MaxTokens is the output limit that the engine will honour: the one that is named as the path has it. 0 when none was.
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

	// Foreign is n_predict where the path does not have it: llama.cpp honours it all the same, other engines pass over it. -1
	// is no limit, 0 when it is not named.
	Foreign int

	limit                    limitPlace
	form                     bool // the body is multipart/form-data
	empty                    bool // the object has no members
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

// members are the names of the members that a router reads. Each may stand once, and no other member may be one of them
// in another case: engines differ in which of two they take, and those written in Go fold case (Unicode's too), so that a
// request would mean one thing here and another there. The index of a name is its bit in what was seen.
var members = [...]string{
	"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "n", "user",
	"messages", "prompt", "input", "instructions", "tools", "suffix", "system", "options", "sampling_params", "parameters",
	"text", "text_input", "inputs", "query", "queries", "documents", "text_1", "text_2", "input_prefix", "input_suffix",
	"lora_path", "num_predict", "max_new_tokens", "adapter_id", "lora_name",
}

// The indexes of members.
const (
	atModel = iota
	atStream
	atOptions
	atMaxTokens
	atMaxCompletion
	atMaxOutput
	atNPredict
	atN
	atUser
	atMessages
	atPrompt
	atInput
	atInstructions
	atTools
	atSuffix
	atSystem
	atOllamaOptions
	atSampling
	atParameters
	atText
	atTextInput
	atInputs
	atQuery
	atQueries
	atDocuments
	atText1
	atText2
	atInputPrefix
	atInputSuffix
	atLoRAPath
	atNone = -1
)

// Scan is ScanAs for a chat.
func Scan(body []byte, env *Envelope) error { return ScanAs(ShapeChat, body, env) }

// ScanAs reads the envelope of a body of a shape in one pass. It returns an *Error (400) that says what is wrong with the
// body. The Model and User strings of a reused env are kept when they are equal, so that a steady caller costs no
// allocation. A body that names no model is an error unless the shape allows it.
func ScanAs(shape Shape, body []byte, env *Envelope) error {
	*env = Envelope{Model: env.Model, User: env.User, N: 1}
	o, ok := open(body)
	if !ok {
		return InvalidJSON("the body is not a JSON object")
	}
	var seen uint64
	env.empty = true
	for {
		key, v, ok := o.next()
		if !ok {
			break
		}
		env.empty = false
		at, err := env.member(shape, key, v, &o)
		if err != nil {
			return err
		}
		if at == atNone {
			continue
		}
		if seen&(1<<at) != 0 {
			return InvalidJSON("the body names a member twice: \"" + string(key) + "\"")
		}
		seen |= 1 << at
	}
	if o.bad {
		return InvalidJSON("the body is not well-formed JSON near byte " + strconv.Itoa(o.i))
	}
	if space(body, o.i) != len(body) {
		return InvalidJSON("something follows the JSON object")
	}
	if seen&(1<<atUser) == 0 {
		env.User = ""
	}
	if seen&(1<<atModel) == 0 {
		env.Model = ""
	}
	if env.Model == "" && !shape.ModelOptional() {
		return ModelRequired()
	}
	return env.settleLimit()
}

// member takes one member into the envelope and returns its index in members, atNone for members that a router does not
// read.
func (e *Envelope) member(shape Shape, key, v []byte, o *object) (at int, err error) {
	switch string(key) {
	case "model":
		if v[0] != '"' {
			return 0, badType("model", "a string")
		}
		e.ModelEnd = o.i
		e.ModelStart = o.i - len(v)
		keep(&e.Model, v)
		return atModel, nil
	case "stream":
		e.Stream, err = boolean("stream", v)
		return atStream, err
	case "stream_options":
		e.options(v, o.i)
		return atOptions, nil
	case "max_tokens":
		return atMaxTokens, e.limited(shape, atMaxTokens, v, o.i)
	case "max_completion_tokens":
		return atMaxCompletion, e.limited(shape, atMaxCompletion, v, o.i)
	case "max_output_tokens":
		return atMaxOutput, e.limited(shape, atMaxOutput, v, o.i)
	case "n_predict":
		return atNPredict, e.limited(shape, atNPredict, v, o.i)
	case "n":
		n, err := count("n", v)
		e.N = max(n, 1)
		return atN, err
	case "user":
		if v[0] == '"' {
			keep(&e.User, v)
		}
		return atUser, nil
	case "messages":
		e.prompt(v, &o.walk)
		return atMessages, nil
	case "prompt":
		e.prompt(v, &o.walk)
		return atPrompt, nil
	case "input":
		e.prompt(v, &o.walk)
		return atInput, nil
	case "instructions":
		e.PromptBytes += o.walk.text
		return atInstructions, nil
	case "tools":
		e.PromptBytes += o.walk.text
		return atTools, nil
	case "suffix":
		e.PromptBytes += o.walk.text
		return atSuffix, nil
	case "system":
		e.PromptBytes += o.walk.text
		return atSystem, nil
	case "lora_path":
		if string(v) != "null" {
			return 0, invalid(400, CodeInvalidValue, "lora_path", `an adapter is chosen by its name in "model"; leave out "lora_path"`)
		}
		return atLoRAPath, nil
	}
	if at = e.native(shape, key, v, o, &err); at != atNone || err != nil {
		return at, err
	}
	return atNone, foldsToMember(key)
}

// native takes a member that only engines' own paths, rerank and score have.
func (e *Envelope) native(shape Shape, key, v []byte, o *object, err *error) int {
	switch shape {
	case ShapeChat, ShapeCompletions, ShapeEmbeddings, ShapeResponses, ShapeMessages:
		return atNone
	}
	at := atNone
	switch string(key) {
	case "options":
		if at = atOllamaOptions; shape == ShapeOllama {
			*err = e.nested(shape, "options", v, o.i)
		}
	case "sampling_params":
		if at = atSampling; shape == ShapeNative {
			*err = e.nested(shape, "sampling_params", v, o.i)
		}
	case "parameters":
		if at = atParameters; shape == ShapeNative || shape == ShapeGenerate {
			*err = e.nested(shape, "parameters", v, o.i)
		}
	case "text":
		at = atText
	case "text_input":
		at = atTextInput
	case "inputs":
		at = atInputs
	case "query":
		at = atQuery
	case "queries":
		at = atQueries
	case "documents":
		at = atDocuments
	case "text_1":
		at = atText1
	case "text_2":
		at = atText2
	case "input_prefix":
		at = atInputPrefix
	case "input_suffix":
		at = atInputSuffix
	}
	if at >= atText {
		e.PromptBytes += o.walk.text
		e.PromptIDs += o.walk.numbers
		e.Images += o.walk.images
		e.ImageTokens += o.walk.pixels
	}
	return at
}

// foldsToMember refuses a key that is one of members in another case. Keys of small letters alone are none.
func foldsToMember(key []byte) error {
	odd := false
	for _, c := range key {
		odd = odd || c >= 'A' && c <= 'Z' || c >= 0x80
	}
	if !odd {
		return nil
	}
	for _, m := range members {
		if strings.EqualFold(string(key), m) {
			return InvalidJSON("the body names \"" + m + "\" in another case: write it in small letters")
		}
	}
	return nil
}

func (e *Envelope) prompt(v []byte, w *walk) {
	e.Prompt = v
	e.PromptBytes += w.text
	e.PromptIDs += w.numbers
	e.Images += w.images
	e.ImageTokens += w.pixels
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
