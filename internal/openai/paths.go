package openai

import (
	"net/url"
	"strings"
)

// Paths that a front door serves.
const (
	PathChat        = "/v1/chat/completions"
	PathCompletions = "/v1/completions"
	PathEmbeddings  = "/v1/embeddings"
	PathResponses   = "/v1/responses"
	PathModels      = "/v1/models"
	// PathMessages is Anthropic's: its requests pass as they are, and errors are in its shape.
	PathMessages    = "/v1/messages"
	PathCountTokens = "/v1/messages/count_tokens"
)

// Shape is the protocol of a path: which members of a body name its model, its output limit and its usage.
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
	// ShapeScore reads a prompt and writes no text: rerank and score.
	ShapeScore
	// ShapeCount tokenizes or counts tokens: no prompt is prefilled.
	ShapeCount
	ShapeTranscription
	ShapeSpeech
	ShapeImages
	// ShapeInfer is KServe's open inference protocol v2: the model is in the path, the body holds tensors.
	ShapeInfer
	// ShapeGenerate is Triton's generate extension of it: the model is in the path, the body is JSON.
	ShapeGenerate
	// ShapeOllama is Ollama's own /api/chat and /api/generate, ShapeOllamaEmbed its /api/embed and /api/embeddings.
	ShapeOllama
	ShapeOllamaEmbed
	// ShapeNative is /generate and /generate_stream of SGLang and TGI. Their bodies name no model.
	ShapeNative
	// ShapeLlamaCPP is llama.cpp's own /completion and /infill.
	ShapeLlamaCPP
)

// ShapeOf is the shape of a POST to a path as the client wrote it, escapes included and without the query. It compares
// bytes: no other way of writing a path means the same.
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
	_, shape := modelPath(escaped)
	return shape
}

// Generates reports whether an answer of the shape is text that takes decoding, and holds KV cache while it does.
func (s Shape) Generates() bool {
	switch s {
	case ShapeUnknown, ShapeChat, ShapeCompletions, ShapeResponses, ShapeMessages, ShapeGenerate, ShapeOllama, ShapeNative, ShapeLlamaCPP:
		return true
	}
	return false
}

// Output estimates the tokens of an answer that states none: of text that is generated, expected; of images and speech what
// they are taken for, and of a transcript its length, which is bytes.
func (s Shape) Output(e *Envelope, expected int, bytes int64, bytesPerToken float64) int {
	switch {
	case s == ShapeImages:
		return e.N * generatedImageTokens
	case s == ShapeSpeech:
		return int(bytes / audioBytesPerToken)
	case s == ShapeTranscription && bytesPerToken > 0:
		return int(float64(bytes) / bytesPerToken)
	case s.Generates():
		return expected
	}
	return 0
}

// generatedImageTokens is what an image that is generated is taken for, in tokens: the order of what image models state.
const generatedImageTokens = 1024

// ModelInPath reports whether the path names the model.
func (s Shape) ModelInPath() bool { return s == ShapeInfer || s == ShapeGenerate }

// ModelOptional reports whether a body of the shape may leave its model out, because another part of the request names it.
func (s Shape) ModelOptional() bool {
	return s.ModelInPath() || s == ShapeUnknown || s == ShapeNative || s == ShapeLlamaCPP || s == ShapeCount
}

// Anthropic reports whether errors on the path are in the shape of Anthropic's API.
func Anthropic(path string) bool { return path == PathMessages || path == PathCountTokens }

// Continues reports whether a POST to the path, query and all, asks for text that continues a prompt: any model's answer
// has the same form. The numbers of embeddings and inferences differ from model to model.
func Continues(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	return path == PathChat || path == PathCompletions || path == PathResponses || path == PathMessages
}

// modelPath reads the model out of an escaped path of KServe's protocol: infer, and Triton's generate and
// generate_stream, of any version. The shape is ShapeUnknown for any other path.
func modelPath(escaped string) (model string, shape Shape) {
	rest, ok := strings.CutPrefix(escaped, "/v2/models/")
	if !ok {
		return "", ShapeUnknown
	}
	name, rest, _ := strings.Cut(rest, "/")
	if versioned, ok := strings.CutPrefix(rest, "versions/"); ok {
		var version string
		if version, rest, _ = strings.Cut(versioned, "/"); !plainSegment(version) {
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

// plainSegment reports whether a segment of a path means itself to every server: no escape, no dot segment.
func plainSegment(s string) bool {
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

// InferModel is the model that an escaped path of KServe's protocol names; false for a path that names none.
func InferModel(escaped string) (model string, ok bool) {
	model, shape := modelPath(escaped)
	return model, shape != ShapeUnknown
}

// InferPath is an escaped path of KServe's protocol with its model replaced: an alias must reach the engine as the model
// it resolved to.
func InferPath(escaped, model string) string {
	rest := strings.TrimPrefix(escaped, "/v2/models/")
	_, rest, _ = strings.Cut(rest, "/")
	return "/v2/models/" + url.PathEscape(model) + "/" + rest
}
