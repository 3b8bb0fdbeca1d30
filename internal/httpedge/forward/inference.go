package forward

import (
	"net/http"
	"strings"

	"github.com/spillway-lb/spillway/internal/spec"
)

// Headers of the Gateway API inference extension, and llm-d's names for them.
const (
	headerObjective      = "X-Gateway-Inference-Objective"
	headerObjectiveLLMD  = "X-Llm-D-Inference-Objective"
	headerFairness       = "X-Gateway-Inference-Fairness-Id"
	headerFairnessLLMD   = "X-Llm-D-Inference-Fairness-Id"
	headerRewrite        = "X-Gateway-Model-Name-Rewrite"
	headerRewriteLLMD    = "X-Llm-D-Model-Name-Rewrite"
	HeaderServedEndpoint = "X-Gateway-Destination-Endpoint-Served" // in a response: host:port of its worker
)

// maxFlowBytes bounds the name of a flow, in bytes.
const maxFlowBytes = 128

// firstOf returns the first non-empty value of two headers. The names must be in canonical form, as for
// FirstValue.
func firstOf(h http.Header, one, other string) string {
	if v := FirstValue(h, one); v != "" {
		return v
	}
	return FirstValue(h, other)
}

// TakeModelRewrite removes and returns the model of the rewrite header, which is served instead of the model in
// the body; empty if there is none. Permissions are checked as if the body named it.
func TakeModelRewrite(h http.Header) string {
	v := firstOf(h, headerRewrite, headerRewriteLLMD)
	if v != "" {
		delete(h, headerRewrite) // a worker that is itself a gateway would rewrite again
		delete(h, headerRewriteLLMD)
	}
	return v
}

// SetServedEndpoint sets the header that names the worker of a response by its URL, if trusted is true: only
// trusted clients learn internal addresses.
func SetServedEndpoint(out http.Header, trusted bool, url string) {
	if !trusted {
		delete(out, HeaderServedEndpoint)
		return
	}
	_, at, _ := strings.Cut(url, "://")
	at, _, _ = strings.Cut(at, "/")
	out.Set(HeaderServedEndpoint, at)
}

// RequestedClass returns the class that a request names by HeaderClientClass or by its objective. An unknown
// objective is ignored, because objectives are free names; an unknown class in our own header is an error. The
// default is the standard class.
func RequestedClass(h http.Header, s *spec.Spec) (c spec.Class, named bool, err error) {
	if v := h.Get(HeaderClientClass); v != "" {
		c, err = spec.ParseClass(v)
		return c, err == nil, err
	}
	if v := firstOf(h, headerObjective, headerObjectiveLLMD); v != "" {
		if c, named = s.ObjectiveClass(v); named {
			return c, true, nil
		}
	}
	return spec.Standard, false, nil
}

// FairnessFlow returns the fairness id of a request, which separates the flows of one tenant. It is empty for
// an invalid name, and for a tenant whose spec does not allow it to set flows.
func FairnessFlow(h http.Header, t *spec.Tenant) string {
	if t == nil || !t.Trusted {
		return ""
	}
	id := firstOf(h, headerFairness, headerFairnessLLMD)
	if len(id) > maxFlowBytes {
		return ""
	}
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c > '~' {
			return ""
		}
	}
	return id
}
