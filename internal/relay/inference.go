package relay

import (
	"net/http"
	"strings"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Headers of the Gateway API's inference extension, and llm-d's names for the same.
const (
	headerObjective      = "X-Gateway-Inference-Objective"
	headerObjectiveLLMD  = "X-Llm-D-Inference-Objective"
	headerFairness       = "X-Gateway-Inference-Fairness-Id"
	headerFairnessLLMD   = "X-Llm-D-Inference-Fairness-Id"
	headerRewrite        = "X-Gateway-Model-Name-Rewrite"
	headerRewriteLLMD    = "X-Llm-D-Model-Name-Rewrite"
	HeaderServedEndpoint = "X-Gateway-Destination-Endpoint-Served" // on an answer: host:port of its worker
)

// maxFlow bounds the name of a flow, in bytes.
const maxFlow = 128

// either is the first of two headers that says anything. The names are in canonical form, as First wants them.
func either(h http.Header, one, other string) string {
	if v := First(h, one); v != "" {
		return v
	}
	return First(h, other)
}

// TakeRewrite takes out of a request's head the model that is to serve it instead of the one that its body names; empty when
// none is. It is asked for as if the body named it: what the caller may use is judged by it.
func TakeRewrite(h http.Header) string {
	v := either(h, headerRewrite, headerRewriteLLMD)
	if v != "" {
		delete(h, headerRewrite) // a worker that is a gateway itself would rewrite once more
		delete(h, headerRewriteLLMD)
	}
	return v
}

// TellEndpoint says in the head of an answer which worker it is from, by its URL, or not at all: only trusted callers are
// told how the inside looks.
func TellEndpoint(out http.Header, told bool, url string) {
	if !told {
		delete(out, HeaderServedEndpoint)
		return
	}
	_, at, _ := strings.Cut(url, "://")
	at, _, _ = strings.Cut(at, "/")
	out.Set(HeaderServedEndpoint, at)
}

// NamedClass is the class that a request names, by our own header or by its objective. What is no class of ours says
// nothing where it is an objective, whose names are anybody's, and is a mistake in our own header. Who names none is of
// the standard class.
func NamedClass(h http.Header, s *spec.Spec) (c spec.Class, named bool, err error) {
	if v := h.Get(HeaderClientClass); v != "" {
		c, err = spec.ParseClass(v)
		return c, err == nil, err
	}
	if v := either(h, headerObjective, headerObjectiveLLMD); v != "" {
		if c, named = s.Objective(v); named {
			return c, true, nil
		}
	}
	return spec.Standard, false, nil
}

// Flow tells the flows of one tenant apart, by the fairness id of its request; empty for a tenant that the spec does not
// trust to say for whom it asks, and for what is no name.
func Flow(h http.Header, t *spec.Tenant) string {
	if t == nil || !t.Trusted {
		return ""
	}
	id := either(h, headerFairness, headerFairnessLLMD)
	if len(id) > maxFlow {
		return ""
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' {
			return ""
		}
	}
	return id
}
