package openai

import "strings"

// Paths that a front door serves.
const (
	PathChat        = "/v1/chat/completions"
	PathCompletions = "/v1/completions"
	PathEmbeddings  = "/v1/embeddings"
	PathResponses   = "/v1/responses"
	PathModels      = "/v1/models"
	// PathMessages is Anthropic's: its requests pass as they are, and errors are in its shape.
	PathMessages = "/v1/messages"
)

// Continues reports whether a POST to the path, query and all, asks for text that continues a prompt: any model's answer
// has the same form. The numbers of embeddings and inferences differ from model to model.
func Continues(path string) bool {
	path, _, _ = strings.Cut(path, "?")
	return path == PathChat || path == PathCompletions || path == PathResponses || path == PathMessages
}

// Generates reports whether a POST to the path asks a model for work.
func Generates(path string) bool {
	switch path {
	case PathChat, PathCompletions, PathEmbeddings, PathResponses, PathMessages:
		return true
	}
	return false
}
