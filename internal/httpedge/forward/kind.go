package forward

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/spillway-lb/spillway/internal/grpcmeta"
	"github.com/spillway-lb/spillway/internal/openai"
)

// Kind is how a request is forwarded.
type Kind uint8

// The kinds of forwarding.
const (
	// Buffered requests are read completely before they are sent.
	Buffered Kind = iota
	// GRPC calls stream both ways and end with trailers.
	GRPC
	// WebSocket connections belong to one worker after the upgrade (RFC 6455; HTTP/1.1 only).
	WebSocket
)

// Headers that name the model of a request outside its body: Spillway's, and that of the Gateway API inference
// extension.
const (
	HeaderClientModel  = "X-Model"
	HeaderGatewayModel = "X-Gateway-Model-Name"
	// ParamModel names it in the query, for browsers, which cannot set headers of a WebSocket.
	ParamModel = "model"
)

// KindOf returns how a request is forwarded. A request to a known path is Buffered, regardless of its
// headers.
func KindOf(r *http.Request) Kind {
	switch {
	case r.Method == http.MethodPost && grpcmeta.IsGRPC(FirstValue(r.Header, "Content-Type")):
		return GRPC
	case r.Method == http.MethodGet && r.ProtoMajor == 1 && asksWebSocket(r.Header):
		return WebSocket
	}
	return Buffered
}

// asksWebSocket reports whether a client requests a WebSocket.
func asksWebSocket(h http.Header) bool {
	if !strings.EqualFold(FirstValue(h, "Upgrade"), "websocket") {
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

// ModelFromHeaders returns the model that a request names in its headers or query; empty if it names none. Two
// different names are an error: a worker could use either.
func ModelFromHeaders(r *http.Request) (string, *openai.Error) {
	model := ""
	for _, name := range [...]string{HeaderClientModel, HeaderGatewayModel} {
		for _, v := range r.Header[name] {
			if v != "" && model != "" && v != model {
				return "", conflictingModels(model, v)
			}
			model = cmp.Or(v, model)
		}
	}
	if r.URL.RawQuery == "" {
		return model, nil
	}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil && mayNameModel(r.URL.RawQuery) { // an engine may parse what url.ParseQuery rejects
		return "", openai.InvalidJSON("the query of the URL names a model and cannot be read: " + err.Error())
	}
	for name, values := range q {
		for _, v := range values {
			switch {
			case !strings.EqualFold(name, ParamModel):
			case name != ParamModel || model != "" && v != model:
				return "", conflictingModels(model, v)
			default:
				model = v
			}
		}
	}
	return model, nil
}

// mayNameModel reports whether a malformed query could name a model to some parser.
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

// ReconcileModel returns the model of a request. inside is the model named by its body or path, if any; it must
// equal the model named by headers or query.
func ReconcileModel(r *http.Request, inside string) (string, *openai.Error) {
	outside, e := ModelFromHeaders(r)
	switch {
	case e != nil:
		return "", e
	case outside == "":
		return inside, nil
	case inside != "" && inside != outside:
		return "", conflictingModels(inside, outside)
	}
	return outside, nil
}

// ReplaceHeaderModel replaces the model in the headers of a request.
func ReplaceHeaderModel(h http.Header, name string) {
	for _, key := range [...]string{HeaderClientModel, HeaderGatewayModel} {
		if FirstValue(h, key) != "" {
			h[key] = []string{name}
		}
	}
}

// ReplaceQueryModel replaces the model in a query.
func ReplaceQueryModel(query, name string) string {
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

func conflictingModels(a, b string) *openai.Error {
	e := openai.ModelRequired()
	e.Code = openai.CodeInvalidValue
	e.Message = fmt.Sprintf("the request names two models, %.64q and %.64q, in its body, path, x-model header or query: name one", a, b)
	return e
}
