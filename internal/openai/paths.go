package openai

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// Paths served by Spillway.
const (
	PathChat        = "/v1/chat/completions"
	PathCompletions = "/v1/completions"
	PathEmbeddings  = "/v1/embeddings"
	PathResponses   = "/v1/responses"
	PathModels      = "/v1/models"
	// PathMessages is Anthropic's: requests pass unchanged, and errors are in its shape.
	PathMessages    = "/v1/messages"
	PathCountTokens = "/v1/messages/count_tokens"
)

// Shape is the protocol of a path: which members of a body hold its model, output limit and usage.
type Shape uint8

// The shapes.
const (
	// ShapeUnknown is a path of no known protocol.
	ShapeUnknown Shape = iota
	ShapeChat
	ShapeCompletions
	ShapeResponses
	ShapeMessages
	ShapeEmbeddings
	// ShapeScore reads a prompt and generates no text: rerank and score.
	ShapeScore
	// ShapeCount tokenizes or counts tokens: no prompt is prefilled.
	ShapeCount
	ShapeTranscription
	ShapeSpeech
	ShapeImages
	// ShapeInfer is KServe's open inference protocol v2: the model is in the path, the body contains tensors.
	ShapeInfer
	// ShapeGenerate is Triton's generate extension of it: the model is in the path, the body is JSON.
	ShapeGenerate
	// ShapeOllama is Ollama's own /api/chat and /api/generate, ShapeOllamaEmbed its /api/embed and /api/embeddings.
	ShapeOllama
	ShapeOllamaEmbed
	// ShapeNative is /generate and /generate_stream of SGLang and TGI. Their bodies do not name a model.
	ShapeNative
	// ShapeLlamaCPP is llama.cpp's own /completion and /infill.
	ShapeLlamaCPP
)

// ShapeOf returns the shape of a POST to a path as the client wrote it, with escapes and without the query. It
// compares bytes: no other spelling of a path matches.
func ShapeOf(escaped string) Shape {
	switch escaped {
	case PathChat:
		return ShapeChat
	case PathCompletions:
		return ShapeCompletions
	case PathResponses:
		return ShapeResponses
	case PathMessages:
		return ShapeMessages
	case PathEmbeddings:
		return ShapeEmbeddings
	case PathCountTokens, "/tokenize", "/detokenize", "/v1/tokenize", "/v1/detokenize":
		return ShapeCount
	case "/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score":
		return ShapeScore
	case "/v1/audio/transcriptions", "/v1/audio/translations":
		return ShapeTranscription
	case "/v1/audio/speech":
		return ShapeSpeech
	case "/v1/images/generations", "/v1/images/edits", "/v1/images/variations":
		return ShapeImages
	case "/api/chat", "/api/generate":
		return ShapeOllama
	case "/api/embed", "/api/embeddings":
		return ShapeOllamaEmbed
	case "/generate", "/generate_stream":
		return ShapeNative
	case "/completion", "/completions", "/infill":
		return ShapeLlamaCPP
	}
	_, shape := parseModelPath(escaped)
	return shape
}

// GeneratesText reports whether a response of the shape is decoded text, which holds KV cache meanwhile.
func (s Shape) GeneratesText() bool {
	switch s {
	case ShapeUnknown, ShapeChat, ShapeCompletions, ShapeResponses, ShapeMessages, ShapeGenerate, ShapeOllama, ShapeNative, ShapeLlamaCPP:
		return true
	}
	return false
}

// EstimateOutput estimates the tokens of a response that reports none: expected for generated text, constants
// for images and speech, and for a transcript its length in bytes.
func (s Shape) EstimateOutput(e *Envelope, expected int, bytes int64, bytesPerToken float64) int {
	switch {
	case s == ShapeImages:
		return e.N * generatedImageTokens
	case s == ShapeSpeech:
		return int(bytes / audioBytesPerToken)
	case s == ShapeTranscription && bytesPerToken > 0:
		return int(float64(bytes) / bytesPerToken)
	case s.GeneratesText():
		return expected
	}
	return 0
}

// generatedImageTokens is the assumed cost of a generated image, in tokens: the order reported by image models.
const generatedImageTokens = 1024

// ModelInPath reports whether the path names the model.
func (s Shape) ModelInPath() bool { return s == ShapeInfer || s == ShapeGenerate }

// ModelOptional reports whether a body of the shape may omit its model, because another part of the request
// names it.
func (s Shape) ModelOptional() bool {
	return s.ModelInPath() || s == ShapeUnknown || s == ShapeNative || s == ShapeLlamaCPP || s == ShapeCount
}

// IsAnthropicPath reports whether errors on the path are in the shape of Anthropic's API.
func IsAnthropicPath(path string) bool { return path == PathMessages || path == PathCountTokens }

// ContinuesPrompt reports whether a POST to the path, including its query, asks for text that continues a
// prompt: the response then has the same form for any model. The numbers of embeddings and inferences differ
// between models.
func ContinuesPrompt(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	return path == PathChat || path == PathCompletions || path == PathResponses || path == PathMessages
}

// parseModelPath parses the model from an escaped path of KServe's protocol: infer, and Triton's generate and
// generate_stream, of any version. The shape is ShapeUnknown for any other path.
func parseModelPath(escaped string) (model string, shape Shape) {
	rest, ok := strings.CutPrefix(escaped, "/v2/models/")
	if !ok {
		return "", ShapeUnknown
	}
	name, rest, _ := strings.Cut(rest, "/")
	if versioned, ok := strings.CutPrefix(rest, "versions/"); ok {
		var version string
		if version, rest, _ = strings.Cut(versioned, "/"); !isPlainSegment(version) {
			return "", ShapeUnknown
		}
	}
	switch rest {
	case "infer":
		shape = ShapeInfer
	case "generate", "generate_stream":
		shape = ShapeGenerate
	default:
		return "", ShapeUnknown
	}
	model, err := url.PathUnescape(name)
	if err != nil || model == "" || model == "." || model == ".." {
		return "", ShapeUnknown
	}
	return model, shape
}

// isPlainSegment reports whether a path segment means the same to every server: no escape, no dot segment.
func isPlainSegment(s string) bool {
	if s == "" || s == "." || s == ".." {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

// ModelFromPath returns the model in an escaped path of KServe's protocol; false for other paths.
func ModelFromPath(escaped string) (model string, ok bool) {
	model, shape := parseModelPath(escaped)
	return model, shape != ShapeUnknown
}

// ReplacePathModel returns an escaped path of KServe's protocol with its model replaced: the engine must
// receive the resolved model of an alias.
func ReplacePathModel(escaped, model string) string {
	rest := strings.TrimPrefix(escaped, "/v2/models/")
	_, rest, _ = strings.Cut(rest, "/")
	return "/v2/models/" + url.PathEscape(model) + "/" + rest
}

// ModelCard is a model in the list for clients.
type ModelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"` // Unix seconds
	OwnedBy string `json:"owned_by"`
}

// IsModelsPath reports whether a GET of the path asks for the list of models, or for one model; one is empty
// for the list.
func IsModelsPath(path string) (one string, ok bool) {
	if path == PathModels {
		return "", true
	}
	one, ok = strings.CutPrefix(path, PathModels+"/")
	return one, ok && one != ""
}

// EncodeModels returns the response: the list of names, or the card of one of them.
func EncodeModels(names []string, one string, created int64) ([]byte, *Error) {
	card := func(name string) ModelCard {
		return ModelCard{ID: name, Object: "model", Created: created, OwnedBy: "spillway"}
	}
	var out any
	if one != "" {
		if !slices.Contains(names, one) {
			return nil, ModelNotFound(one, names)
		}
		out = card(one)
	} else {
		list := struct {
			Object string      `json:"object"`
			Data   []ModelCard `json:"data"`
		}{Object: "list", Data: make([]ModelCard, 0, len(names))}
		for _, name := range names {
			list.Data = append(list.Data, card(name))
		}
		out = list
	}
	b, _ := json.Marshal(out) // strings and numbers always marshal
	return append(b, '\n'), nil
}
