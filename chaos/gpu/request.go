package gpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// kind is one of the generating endpoints.
type kind uint8

const (
	chat kind = iota
	completion
	anthropic
)

// message is one turn of a chat.
type message struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

// body is what a client may ask for. Sampling parameters that change which tokens come but not how many are taken and
// have no meaning here: no tokens are computed.
type body struct {
	Model               string          `json:"model"`
	Messages            []message       `json:"messages"`
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

// job is a request as the engine and the writer need it.
type job struct {
	kind   kind
	model  string
	stream bool
	usage  bool // a usage event ends the stream
	input  prompt
	output int
	finish string // "length" or "stop"
	key    uint64 // names the answer's text
	from   int    // tokens of it that the request brings along
}

// errModel marks a request for a model that is not served.
var errModel = errors.New("unknown model")

// decode reads a request. Errors are the client's fault.
func decode(k kind, raw []byte, served string, limits Limits, seed uint64) (*job, error) {
	var b body
	if err := json.Unmarshal(raw, &b); err != nil {
		return nil, fmt.Errorf("the body is not a request: %w", err)
	}
	if b.Model != "" && b.Model != served {
		return nil, fmt.Errorf("%w: The model `%.100s` does not exist.", errModel, b.Model)
	}
	if err := b.check(); err != nil {
		return nil, err
	}
	in, err := b.read(k)
	if err != nil {
		return nil, err
	}
	j := &job{kind: k, model: served, stream: b.Stream, input: in}
	j.find(seed, uint64(b.Seed))
	j.usage = b.StreamOptions != nil && b.StreamOptions.IncludeUsage
	return j, j.measure(&b, limits)
}

// find names the answer: what begins with words that are the beginning of an answer of ours goes on with that one.
func (j *job) find(seeds ...uint64) {
	named := func(key uint64) uint64 {
		for _, s := range seeds {
			key ^= mix(s)
		}
		return mix(key)
	}
	in := &j.input
	if in.base != 0 {
		in.bases = []uint64{in.base}
	}
	for i, base := range in.bases {
		text := in.said
		if in.base == 0 {
			text = text[len(text)-(len(in.bases)-i)*bytesPerToken:]
		}
		if key := named(base); said(key, text) > 0 {
			j.key, j.from = key, said(key, text)
			return
		}
	}
	j.key = named(in.key)
}

// check refuses what the worker cannot do.
func (b *body) check() error {
	switch {
	case b.N != nil && *b.N != 1:
		return errors.New("n: this worker makes one choice, use n = 1")
	case b.BestOf != nil && *b.BestOf != 1:
		return errors.New("best_of: this worker makes one choice, use best_of = 1")
	case b.Echo:
		return errors.New("echo: not supported, leave it out")
	case b.Suffix != nil && *b.Suffix != "":
		return errors.New("suffix: not supported, leave it out")
	case asked(b.Logprobs):
		return errors.New("logprobs: this worker computes no probabilities, leave it out")
	case asked(b.Tools):
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

// asked reports whether an optional field asks for anything.
func asked(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "", "null", "false", "0", "[]":
		return false
	}
	return true
}

// checkStop takes stop strings that cannot occur in an answer, which is letters and spaces, and refuses the others.
func (b *body) checkStop() error {
	if !asked(b.Stop) {
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

// measure decides how long the answer is.
func (j *job) measure(b *body, limits Limits) error {
	room := limits.MaxModelLen - j.input.tokens
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
			limits.MaxModelLen, max(most, 1), j.input.tokens)
	}
	if b.MinTokens > most {
		return fmt.Errorf("min_tokens must be less than or equal to max_tokens=%d, got %d.", most, b.MinTokens)
	}
	j.output, j.finish = most, "length"
	if natural := max(naturalLength(j.key)-j.from, b.MinTokens, 1); !b.IgnoreEOS && natural < most {
		j.output, j.finish = natural, "stop"
	}
	return nil
}

// naturalLength is where an answer would end by itself: lognormal with the median and spread of conversations in the
// Azure 2023 trace.
func naturalLength(key uint64) int {
	u1 := (float64(mix(key+1)>>11) + 0.5) / (1 << 53)
	u2 := float64(mix(key+2)>>11) / (1 << 53)
	z := math.Sqrt(-2*math.Log(u1)) * math.Cos(2*math.Pi*u2)
	return max(1, int(math.Round(129*math.Exp(0.93*z))))
}
