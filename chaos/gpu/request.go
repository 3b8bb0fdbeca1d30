package gpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// endpointKind is one of the generating endpoints.
type endpointKind uint8

const (
	kindChat endpointKind = iota
	kindCompletion
	kindAnthropic
)

// chatMessage is one turn of a chat.
type chatMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// requestBody is the body of a request. Sampling parameters that change which tokens are generated but not their
// number are accepted and have no effect.
type requestBody struct {
	Model               string          `json:"model"`
	Messages            []chatMessage   `json:"messages"`
	System              json.RawMessage `json:"system"`
	Prompt              json.RawMessage `json:"prompt"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	MinTokens           int             `json:"min_tokens"`
	IgnoreEOS           bool            `json:"ignore_eos"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	Seed                int64           `json:"seed"`
	Stop                json.RawMessage `json:"stop"`
	N                   *int            `json:"n"`
	BestOf              *int            `json:"best_of"`
	Echo                bool            `json:"echo"`
	Suffix              *string         `json:"suffix"`
	Logprobs            json.RawMessage `json:"logprobs"`
	Tools               json.RawMessage `json:"tools"`
	ResponseFormat      *struct {
		Type string `json:"type"`
	} `json:"response_format"`
	ContinueFinalMessage bool  `json:"continue_final_message"`
	AddGenerationPrompt  *bool `json:"add_generation_prompt"`
}

type streamOptions struct {
	IncludeUsage    bool `json:"include_usage"`
	ContinuousUsage bool `json:"continuous_usage_stats"`
}

// generationJob is a request as used by the engine and the writer.
type generationJob struct {
	kind            endpointKind
	model           string
	stream          bool
	wantsUsage      bool // a usage event ends the stream
	prompt          parsedPrompt
	outputTokens    int
	finishReason    string // "length" or "stop"
	answerKey       uint64 // identifies the answer's text
	continuedTokens int    // tokens of it that the request contains
}

// errModel marks a request for a model that is not served.
var errModel = errors.New("unknown model")

// decodeJob decodes a request. Errors are the client's.
func decodeJob(k endpointKind, raw []byte, served string, limits EngineLimits, seed uint64) (*generationJob, error) {
	var b requestBody
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, fmt.Errorf("the body is not a request: %w", err)
	}
	if b.Model != "" && b.Model != served {
		return nil, fmt.Errorf("%w: The model `%.100s` does not exist.", errModel, b.Model)
	}
	if err := b.checkSupported(); err != nil {
		return nil, err
	}
	in, err := b.readInput(k)
	if err != nil {
		return nil, err
	}
	j := &generationJob{kind: k, model: served, stream: b.Stream, prompt: in}
	j.findAnswer(seed, uint64(b.Seed))
	j.wantsUsage = b.StreamOptions != nil && b.StreamOptions.IncludeUsage
	return j, j.setOutputLength(&b, limits)
}

// findAnswer identifies the answer: a text that is the beginning of an earlier answer continues that one.
func (j *generationJob) findAnswer(seeds ...uint64) {
	named := func(key uint64) uint64 {
		for _, s := range seeds {
			key ^= splitMix64(s)
		}
		return splitMix64(key)
	}
	in := &j.prompt
	if in.continuedBase != 0 {
		in.possibleBases = []uint64{in.continuedBase}
	}
	for i, base := range in.possibleBases {
		text := in.continuedText
		if in.continuedBase == 0 {
			text = text[len(text)-(len(in.possibleBases)-i)*bytesPerToken:]
		}
		if key := named(base); countAnswerTokens(key, text) > 0 {
			j.answerKey, j.continuedTokens = key, countAnswerTokens(key, text)
			return
		}
	}
	j.answerKey = named(in.hash)
}

// checkSupported refuses unsupported parameters.
func (b *requestBody) checkSupported() error {
	switch {
	case b.N != nil && *b.N != 1:
		return errors.New("n: this worker makes one choice, use n = 1")
	case b.BestOf != nil && *b.BestOf != 1:
		return errors.New("best_of: this worker makes one choice, use best_of = 1")
	case b.Echo:
		return errors.New("echo: not supported, leave it out")
	case b.Suffix != nil && *b.Suffix != "":
		return errors.New("suffix: not supported, leave it out")
	case isSet(b.Logprobs):
		return errors.New("logprobs: this worker computes no probabilities, leave it out")
	case isSet(b.Tools):
		return errors.New("tools: not supported, leave them out")
	case b.ResponseFormat != nil && b.ResponseFormat.Type != "" && b.ResponseFormat.Type != "text":
		return errors.New("response_format: only type text is supported")
	case b.StreamOptions != nil && !b.Stream:
		return errors.New("stream_options: only allowed when stream is set")
	case b.StreamOptions != nil && b.StreamOptions.ContinuousUsage:
		return errors.New("stream_options.continuous_usage_stats: not supported, use include_usage")
	case b.ContinueFinalMessage && (b.AddGenerationPrompt == nil || *b.AddGenerationPrompt):
		return errors.New("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
	case b.MinTokens < 0:
		return errors.New("min_tokens: use 0 or more")
	}
	return b.checkStop()
}

// isSet reports whether an optional field has an effect.
func isSet(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "", "null", "false", "0", "[]":
		return false
	}
	return true
}

// checkStop accepts stop strings that cannot occur in an answer, which has only letters and spaces, and refuses
// others.
func (b *requestBody) checkStop() error {
	if !isSet(b.Stop) {
		return nil
	}
	var list []string
	if json.Unmarshal(b.Stop, &list) != nil {
		var one string
		if json.Unmarshal(b.Stop, &one) != nil {
			return errors.New("stop: use a string or a list of strings")
		}
		list = []string{one}
	}
	for _, s := range list {
		if strings.Trim(s, "abcdefghijklmnopqrstuvwxyz ") == "" {
			return errors.New("stop: this worker's text is lower-case words, stop strings of those are not supported")
		}
	}
	return nil
}

// setOutputLength determines the length of the answer.
func (j *generationJob) setOutputLength(b *requestBody, limits EngineLimits) error {
	room := limits.MaxModelLen - j.prompt.tokens
	most := room
	for _, v := range []*int{b.MaxTokens, b.MaxCompletionTokens} {
		if v == nil {
			continue
		}
		if *v < 1 {
			return fmt.Errorf("max_tokens must be at least 1, got %d.", *v)
		}
		most = *v
	}
	if room < 1 || most > room {
		return fmt.Errorf("This model's maximum context length is %d tokens. However, you requested %d output tokens and your prompt contains %d input tokens.",
			limits.MaxModelLen, max(most, 1), j.prompt.tokens)
	}
	if b.MinTokens > most {
		return fmt.Errorf("min_tokens must be less than or equal to max_tokens=%d, got %d.", most, b.MinTokens)
	}
	j.outputTokens, j.finishReason = most, "length"
	if natural := max(naturalLength(j.answerKey)-j.continuedTokens, b.MinTokens, 1); !b.IgnoreEOS && natural < most {
		j.outputTokens, j.finishReason = natural, "stop"
	}
	return nil
}

// naturalLength is the length of an answer without limits: lognormal with the median and spread of conversations in
// the Azure 2023 trace.
func naturalLength(key uint64) int {
	u1 := (float64(splitMix64(key+1)>>11) + 0.5) / (1 << 53)
	u2 := float64(splitMix64(key+2)>>11) / (1 << 53)
	z := math.Sqrt(-2*math.Log(u1)) * math.Cos(2*math.Pi*u2)
	return max(1, int(math.Round(129*math.Exp(0.93*z))))
}

// allMessages are the messages of a request: in Anthropic's API the system prompt is a separate field.
func (b *requestBody) allMessages(k endpointKind) []chatMessage {
	if k != kindAnthropic || !isSet(b.System) {
		return b.Messages
	}
	return append([]chatMessage{{Role: "system", Content: b.System}}, b.Messages...)
}

// stopReason is the reason of an answer's end in Anthropic's API.
func (j *generationJob) stopReason() string {
	if j.finishReason == "length" {
		return "max_tokens"
	}
	return "end_turn"
}
