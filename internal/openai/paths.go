package openai

// Paths that a front door serves.
const (
	PathChat        = "/v1/chat/completions"
	PathCompletions = "/v1/completions"
	PathEmbeddings  = "/v1/embeddings"
	PathResponses   = "/v1/responses"
	PathModels      = "/v1/models"
)

// Generates reports whether a POST to the path asks a model for work.
func Generates(path string) bool {
	switch path {
	case PathChat, PathCompletions, PathEmbeddings, PathResponses:
		return true
	}
	return false
}
