package tracing

import "github.com/spillway-lb/spillway/internal/openai"

// OperationOf returns the operation of a path's shape in the semantic conventions for generative AI; empty for others.
func OperationOf(s openai.Shape) string {
	switch s {
	case openai.ShapeChat, openai.ShapeResponses, openai.ShapeMessages, openai.ShapeOllama:
		return "chat"
	case openai.ShapeCompletions, openai.ShapeGenerate, openai.ShapeNative, openai.ShapeLlamaCPP:
		return "text_completion"
	case openai.ShapeEmbeddings, openai.ShapeOllamaEmbed:
		return "embeddings"
	}
	return ""
}
