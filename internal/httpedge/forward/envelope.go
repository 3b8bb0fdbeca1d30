package forward

import (
	"errors"
	"net/http"
	"strings"

	"github.com/spillway-lb/spillway/internal/openai"
)

// ReadEnvelope reads the fields that routing needs, and the model, from a complete request body. Every
// forwarded body is parsed: JSON by its members, a form by its fields. Other bodies pass only on paths of no
// known protocol, and their request must name the model in a header or the query.
func ReadEnvelope(shape openai.Shape, r *http.Request, body []byte, env *openai.Envelope) *openai.Error {
	var err error
	switch contentType := FirstValue(r.Header, "Content-Type"); {
	case shape == openai.ShapeInfer:
		*env = openai.Envelope{N: 1} // tensors
	case openai.IsForm(contentType):
		if shape != openai.ShapeTranscription && shape != openai.ShapeImages && shape != openai.ShapeUnknown {
			return openai.InvalidJSON("the path takes JSON, not a form")
		}
		err = openai.ScanForm(shape, contentType, body, env)
	case shape == openai.ShapeUnknown && contentType != "" && !strings.Contains(strings.ToLower(contentType), "json") && !startsObject(body):
		if strings.Contains(strings.ToLower(contentType), "urlencoded") {
			return &openai.Error{
				Status: http.StatusUnsupportedMediaType, Type: openai.TypeInvalidRequest, Code: openai.CodeEncoding, NoRetry: true,
				Message: "send the body as JSON or as multipart/form-data",
			}
		}
		*env = openai.Envelope{N: 1, PromptBytes: len(body)}
	default:
		err = openai.ScanBody(shape, body, env)
	}
	if e := (*openai.Error)(nil); errors.As(err, &e) {
		return e
	} else if err != nil {
		return openai.InvalidJSON("the body cannot be read")
	}
	if shape == openai.ShapeCount {
		env.PromptBytes, env.PromptIDs, env.Images, env.ImageTokens = 0, 0, 0, 0 // these endpoints prefill no prompt
	}
	inside := env.Model
	if shape.ModelInPath() {
		inside, _ = openai.ModelFromPath(r.URL.EscapedPath())
		if env.Model != "" && env.Model != inside {
			return conflictingModels(inside, env.Model)
		}
	}
	model, e := ReconcileModel(r, inside)
	if e != nil {
		return e
	}
	if env.Model = model; model == "" {
		e := openai.ModelRequired()
		e.Message = "name a model: \"model\" in the body, or the header x-model"
		return e
	}
	return nil
}

// startsObject reports whether the first non-space byte opens a JSON object or array.
func startsObject(body []byte) bool {
	for _, c := range body {
		switch c {
		case ' ', '\t', '\r', '\n':
			continue
		case '{', '[':
			return true
		}
		return false
	}
	return false
}
