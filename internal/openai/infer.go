package openai

import (
	"net/url"
	"strings"
)

// Paths of KServe's open inference protocol v2, as patterns for a mux: the model stands in the path.
const (
	PatternInfer        = "/v2/models/{model}/infer"
	PatternInferVersion = "/v2/models/{model}/versions/{version}/infer"
)

// InferModel reads the model out of an escaped path of KServe's protocol; false for any other path.
func InferModel(escaped string) (model string, ok bool) {
	rest, ok := strings.CutPrefix(escaped, "/v2/models/")
	name, rest, _ := strings.Cut(rest, "/")
	if !ok || name == "" {
		return "", false
	}
	if rest != "infer" {
		version, ok := strings.CutPrefix(rest, "versions/")
		version, ok2 := strings.CutSuffix(version, "/infer")
		if !ok || !ok2 || version == "" || strings.Contains(version, "/") {
			return "", false
		}
	}
	model, err := url.PathUnescape(name)
	return model, err == nil
}

// InferPath is an escaped path of KServe's protocol with its model replaced: an alias must reach the engine as the model
// it resolved to.
func InferPath(escaped, model string) string {
	rest := strings.TrimPrefix(escaped, "/v2/models/")
	_, rest, _ = strings.Cut(rest, "/")
	return "/v2/models/" + url.PathEscape(model) + "/" + rest
}
