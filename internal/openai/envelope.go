package openai

import (
	"math"
	"strconv"
	"strings"
)

// Envelope holds the fields of a request that routing needs. Slices are views into the scanned body.
type Envelope struct {
	// Model is the requested model, before aliases are resolved.
	Model string
	// ModelStart and ModelEnd bound the raw value of "model" in the body, including quotes.
	ModelStart, ModelEnd int
	// Stream: the response is requested as server-sent events.
	Stream bool
	// IncludeUsage is stream_options.include_usage.
	IncludeUsage bool
	// MaxTokens is the output limit that the engine applies, under the name used by the path; 0 if none is set.
	MaxTokens int
	// N is the number of requested choices, at least 1.
	N int
	// User is the client's end-user id; empty if none is given.
	User string
	// Prompt is the raw value of messages, prompt or input.
	Prompt []byte
	// PromptBytes is the length of the prompt text in bytes: strings in messages, prompt, input, instructions
	// and tools, without JSON syntax.
	PromptBytes int
	// PromptIDs counts token ids of a prompt given as tokens.
	PromptIDs int
	// Images counts inline images.
	Images int
	// ImageTokens is their estimated cost, in prompt tokens.
	ImageTokens int

	// ForeignLimit is n_predict on paths that do not define it: llama.cpp applies it anyway, other engines
	// ignore it. -1 means unlimited, 0 not set.
	ForeignLimit int

	limit                    limitSpan
	isForm                   bool // the body is multipart/form-data
	isEmpty                  bool // the object has no members
	optionsStart, optionsEnd int  // span of the raw value of stream_options; equal if there is none
	oddOptions               bool // see MayRequestUsage
}

// EstimateTokens estimates the length of the prompt in tokens.
func (e *Envelope) EstimateTokens(bytesPerToken float64) int {
	if bytesPerToken <= 0 {
		bytesPerToken = 4
	}
	n := int(math.Ceil(float64(e.PromptBytes)/bytesPerToken)) + e.PromptIDs + e.ImageTokens
	return max(n, 1)
}

// memberNames are the names of the members that routing reads. Each may occur once, and no other member may
// equal one of them in another case. Engines differ in which of two they use, and those written in Go fold case
// (including Unicode), so such a request would have two meanings. The index of a name is its bit in the set of
// seen members.
var memberNames = [...]string{
	"model", "stream", "stream_options", "max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "n", "user",
	"messages", "prompt", "input", "instructions", "tools", "suffix", "system", "options", "sampling_params", "parameters",
	"text", "text_input", "inputs", "query", "queries", "documents", "text_1", "text_2", "input_prefix", "input_suffix",
	"lora_path", "num_predict", "max_new_tokens", "adapter_id", "lora_name",
}

// The indexes of memberNames.
const (
	memberModel = iota
	memberStream
	memberStreamOptions
	memberMaxTokens
	memberMaxCompletion
	memberMaxOutput
	memberNPredict
	memberN
	memberUser
	memberMessages
	memberPrompt
	memberInput
	memberInstructions
	memberTools
	memberSuffix
	memberSystem
	memberOllamaOptions
	memberSamplingParams
	memberParameters
	memberText
	memberTextInput
	memberInputs
	memberQuery
	memberQueries
	memberDocuments
	memberText1
	memberText2
	memberInputPrefix
	memberInputSuffix
	memberLoRAPath
	memberNone = -1
)

// ScanChat is ScanBody for ShapeChat.
func ScanChat(body []byte, env *Envelope) error { return ScanBody(ShapeChat, body, env) }

// ScanBody parses the envelope of a body in one pass. It returns an *Error (400) that names the fault of the
// body. The Model and User strings of a reused env are kept if equal, so that a repeated caller costs no
// allocation. A body without a model is an error unless the shape allows it.
func ScanBody(shape Shape, body []byte, env *Envelope) error {
	*env = Envelope{Model: env.Model, User: env.User, N: 1}
	o, ok := openObject(body)
	if !ok {
		return InvalidJSON("the body is not a JSON object")
	}
	var seen uint64
	env.isEmpty = true
	for {
		key, v, ok := o.nextMember()
		if !ok {
			break
		}
		env.isEmpty = false
		at, err := env.readMember(shape, key, v, &o)
		if err != nil {
			return err
		}
		if at == memberNone {
			continue
		}
		if seen&(1<<at) != 0 {
			return InvalidJSON("the body names a member twice: \"" + string(key) + "\"")
		}
		seen |= 1 << at
	}
	if o.malformed {
		return InvalidJSON("the body is not well-formed JSON near byte " + strconv.Itoa(o.pos))
	}
	if skipSpace(body, o.pos) != len(body) {
		return InvalidJSON("data follows the JSON object")
	}
	if seen&(1<<memberUser) == 0 {
		env.User = ""
	}
	if seen&(1<<memberModel) == 0 {
		env.Model = ""
	}
	if env.Model == "" && !shape.ModelOptional() {
		return ModelRequired()
	}
	return env.finishLimit()
}

// readMember stores one member in the envelope and returns its index in memberNames, or memberNone for other
// members.
func (e *Envelope) readMember(shape Shape, key, v []byte, o *objectReader) (at int, err error) {
	switch string(key) {
	case "model":
		if v[0] != '"' {
			return 0, wrongType("model", "a string")
		}
		e.ModelEnd = o.pos
		e.ModelStart = o.pos - len(v)
		storeText(&e.Model, v)
		return memberModel, nil
	case "stream":
		e.Stream, err = parseBoolean("stream", v)
		return memberStream, err
	case "stream_options":
		e.readStreamOptions(v, o.pos)
		return memberStreamOptions, nil
	case "max_tokens":
		return memberMaxTokens, e.readLimit(shape, memberMaxTokens, v, o.pos)
	case "max_completion_tokens":
		return memberMaxCompletion, e.readLimit(shape, memberMaxCompletion, v, o.pos)
	case "max_output_tokens":
		return memberMaxOutput, e.readLimit(shape, memberMaxOutput, v, o.pos)
	case "n_predict":
		return memberNPredict, e.readLimit(shape, memberNPredict, v, o.pos)
	case "n":
		n, err := parseCount("n", v)
		e.N = max(n, 1)
		return memberN, err
	case "user":
		if v[0] == '"' {
			storeText(&e.User, v)
		}
		return memberUser, nil
	case "messages":
		e.addPrompt(v, &o.walk)
		return memberMessages, nil
	case "prompt":
		e.addPrompt(v, &o.walk)
		return memberPrompt, nil
	case "input":
		e.addPrompt(v, &o.walk)
		return memberInput, nil
	case "instructions":
		e.PromptBytes += o.walk.textBytes
		return memberInstructions, nil
	case "tools":
		e.PromptBytes += o.walk.textBytes
		return memberTools, nil
	case "suffix":
		e.PromptBytes += o.walk.textBytes
		return memberSuffix, nil
	case "system":
		e.PromptBytes += o.walk.textBytes
		return memberSystem, nil
	case "lora_path":
		if string(v) != "null" {
			return 0, invalidRequest(400, CodeInvalidValue, "lora_path", `an adapter is chosen by its name in "model"; leave out "lora_path"`)
		}
		return memberLoRAPath, nil
	}
	if at = e.readNativeMember(shape, key, v, o, &err); at != memberNone || err != nil {
		return at, err
	}
	return memberNone, checkMemberCase(key)
}

// readNativeMember stores a member that exists only on engine-specific paths, rerank and score.
func (e *Envelope) readNativeMember(shape Shape, key, v []byte, o *objectReader, err *error) int {
	switch shape {
	case ShapeChat, ShapeCompletions, ShapeEmbeddings, ShapeResponses, ShapeMessages:
		return memberNone
	}
	at := memberNone
	switch string(key) {
	case "options":
		if at = memberOllamaOptions; shape == ShapeOllama {
			*err = e.readEngineParams(shape, "options", v, o.pos)
		}
	case "sampling_params":
		if at = memberSamplingParams; shape == ShapeNative {
			*err = e.readEngineParams(shape, "sampling_params", v, o.pos)
		}
	case "parameters":
		if at = memberParameters; shape == ShapeNative || shape == ShapeGenerate {
			*err = e.readEngineParams(shape, "parameters", v, o.pos)
		}
	case "text":
		at = memberText
	case "text_input":
		at = memberTextInput
	case "inputs":
		at = memberInputs
	case "query":
		at = memberQuery
	case "queries":
		at = memberQueries
	case "documents":
		at = memberDocuments
	case "text_1":
		at = memberText1
	case "text_2":
		at = memberText2
	case "input_prefix":
		at = memberInputPrefix
	case "input_suffix":
		at = memberInputSuffix
	}
	if at >= memberText {
		e.PromptBytes += o.walk.textBytes
		e.PromptIDs += o.walk.numbers
		e.Images += o.walk.imageCount
		e.ImageTokens += o.walk.imageTokens
	}
	return at
}

// checkMemberCase refuses a key that equals one of memberNames in another case. Keys of only lower-case letters
// cannot.
func checkMemberCase(key []byte) error {
	odd := false
	for _, c := range key {
		odd = odd || c >= 'A' && c <= 'Z' || c >= 0x80
	}
	if !odd {
		return nil
	}
	for _, m := range memberNames {
		if strings.EqualFold(string(key), m) {
			return InvalidJSON("the body names \"" + m + "\" in another case: write it in small letters")
		}
	}
	return nil
}

func (e *Envelope) addPrompt(v []byte, w *valueWalker) {
	e.Prompt = v
	e.PromptBytes += w.textBytes
	e.PromptIDs += w.numbers
	e.Images += w.imageCount
	e.ImageTokens += w.imageTokens
}

// storeText stores the text of a quoted value, without allocating if dst is already equal.
func storeText(dst *string, quoted []byte) {
	if text := unquoteText(quoted); *dst != string(text) {
		*dst = string(text)
	}
}

func parseBoolean(key string, v []byte) (bool, error) {
	switch string(v) {
	case "true":
		return true, nil
	case "false", "null":
		return false, nil
	}
	return false, wrongType(key, "true or false")
}

// parseCount parses a small whole number; null counts as not given.
func parseCount(key string, v []byte) (int, error) {
	if string(v) == "null" {
		return 0, nil
	}
	if len(v) == 0 || len(v) > 9 {
		return 0, wrongType(key, "a whole number below 1,000,000,000")
	}
	n := 0
	for _, c := range v {
		if c < '0' || c > '9' {
			return 0, wrongType(key, "a whole number, not negative")
		}
		n = n*10 + int(c-'0')
	}
	return n, nil
}
