package relay

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spillway-lb/spillway/internal/grpcwire"
	"github.com/spillway-lb/spillway/internal/openai"
)

// Kind is how a request passes whose body is none of ours to read.
type Kind uint8

// The kinds.
const (
	// Usual requests are read whole before they go on.
	Usual Kind = iota
	// GRPC calls stream both ways, and end with trailers.
	GRPC
	// WebSocket connections are a worker's from the upgrade on (RFC 6455; by HTTP/1.1 alone).
	WebSocket
)

// Headers that name the model of a request beside its body: ours, and that of Gateway API's inference extension.
const (
	HeaderClientModel  = "X-Model"
	HeaderGatewayModel = "X-Gateway-Model-Name"
	// ParamModel does so in the query, for browsers, which cannot set headers of a WebSocket.
	ParamModel = "model"
)

// KindOf is how a request passes. One to a path that is known passes as usual, whatever headers it has.
func KindOf(r *http.Request) Kind {
	switch {
	case r.Method == http.MethodPost && grpcwire.Is(First(r.Header, "Content-Type")):
		return GRPC
	case r.Method == http.MethodGet && r.ProtoMajor == 1 && upgrades(r.Header):
		return WebSocket
	}
	return Usual
}

// upgrades reports whether a client asks for a WebSocket.
func upgrades(h http.Header) bool {
	if !strings.EqualFold(First(h, "Upgrade"), "websocket") {
		return false
	}
	for _, line := range h["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(name), "upgrade") {
				return true
			}
		}
	}
	return false
}

// NamedModel is the model that a request names beside its body, in the headers or the query; empty when it names none.
// Two that differ are an error: a worker may take either.
func NamedModel(r *http.Request) (string, *openai.Error) {
	model := ""
	for _, name := range [...]string{HeaderClientModel, HeaderGatewayModel} {
		for _, v := range r.Header[name] {
			if v != "" && model != "" && v != model {
				return "", modelsDiffer(model, v)
			}
			model = cmp.Or(v, model)
		}
	}
	if r.URL.RawQuery == "" {
		return model, nil
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil && mayNameModel(r.URL.RawQuery) { // what we pass over, an engine may read
		return "", openai.InvalidJSON("the query of the URL names a model and cannot be read: " + err.Error())
	}
	for name, values := range q {
		for _, v := range values {
			switch {
			case !strings.EqualFold(name, ParamModel):
			case name != ParamModel || model != "" && v != model:
				return "", modelsDiffer(model, v)
			default:
				model = v
			}
		}
	}
	return model, nil
}

// mayNameModel reports whether a query that is not well-formed could name a model to some parser.
func mayNameModel(query string) bool {
	var plain strings.Builder
	for i := 0; i < len(query); i++ {
		c := query[i]
		if c == '%' && i+2 < len(query) {
			if n, err := strconv.ParseUint(query[i+1:i+3], 16, 8); err == nil {
				c, i = byte(n), i+2
			}
		}
		plain.WriteByte(c)
	}
	return strings.Contains(strings.ToLower(plain.String()), ParamModel)
}

// AgreeModel is the model of a request whose body, or path, names one or none. It must be what the request names beside
// them.
func AgreeModel(r *http.Request, inside string) (string, *openai.Error) {
	beside, e := NamedModel(r)
	switch {
	case e != nil:
		return "", e
	case beside == "":
		return inside, nil
	case inside != "" && inside != beside:
		return "", modelsDiffer(inside, beside)
	}
	return beside, nil
}

// RenameModel puts another model where the headers of a request name one.
func RenameModel(h http.Header, name string) {
	for _, key := range [...]string{HeaderClientModel, HeaderGatewayModel} {
		if First(h, key) != "" {
			h[key] = []string{name}
		}
	}
}

// RenameQuery puts another model where a query names one.
func RenameQuery(query, name string) string {
	if query == "" {
		return query
	}
	q, err := url.ParseQuery(query)
	if err != nil || !q.Has(ParamModel) || q.Get(ParamModel) == name {
		return query
	}
	q.Set(ParamModel, name)
	return q.Encode()
}

func modelsDiffer(a, b string) *openai.Error {
	e := openai.ModelRequired()
	e.Code = openai.CodeInvalidValue
	e.Message = fmt.Sprintf("the request names two models, %.64q and %.64q, in its body, path, x-model header or query: name one", a, b)
	return e
}
