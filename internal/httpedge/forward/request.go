package forward

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"

	"github.com/spillway-lb/spillway/internal/openai"
)

// memoryBody is a request body in memory, with the target URL of the request. It releases the memory once it
// was sent and the request cannot be sent again: a response may take much longer than its request.
type memoryBody struct {
	url url.URL

	mu           sync.Mutex
	plainReader  bytes.Reader             // if the body has no edits
	editedReader *openai.EditedBodyReader // if it has edits
	body         openai.EditedBody        // the source of both
	unsent       int                      // bytes
	dropped      bool                     // release the body when all was sent
}

// setBody sets the body.
func (h *memoryBody) setBody(w openai.EditedBody) {
	h.body, h.unsent = w, w.Len()
	if w.IsEdited() {
		h.editedReader = h.body.NewReader()
		return
	}
	h.plainReader.Reset(w.Bytes())
}

// Read implements io.Reader.
func (h *memoryBody) Read(p []byte) (n int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.dropped && h.unsent == 0:
		return 0, io.EOF
	case h.editedReader != nil:
		n, err = h.editedReader.Read(p)
	default:
		n, err = h.plainReader.Read(p)
	}
	h.unsent -= n
	h.releaseIfSent()
	return n, err
}

// Close does nothing.
func (h *memoryBody) Close() error { return nil }

// releaseWhenSent releases the memory after the body was sent.
func (h *memoryBody) releaseWhenSent() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropped = true
	h.releaseIfSent()
}

func (h *memoryBody) releaseIfSent() {
	if h.dropped && h.unsent == 0 {
		h.body, h.editedReader = openai.EditedBody{}, nil
		h.plainReader.Reset(nil)
	}
}

var errBodyReleased = errors.New("the body was released: its response has begun")

// reopenBody returns the body rewound.
func (h *memoryBody) reopenBody() (io.ReadCloser, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dropped {
		return nil, errBodyReleased
	}
	again := &memoryBody{}
	again.setBody(h.body)
	return again, nil
}

// setRequestBody sets the body of a request.
func setRequestBody(r *http.Request, w *openai.EditedBody) {
	body := &memoryBody{}
	body.setBody(*w)
	r.Body, r.GetBody, r.ContentLength = body, body.reopenBody, int64(w.Len())
}

// releaseBody releases the body of a request that will not be sent again.
func releaseBody(r *http.Request) {
	if r == nil {
		return
	}
	if h, ok := r.Body.(*memoryBody); ok {
		h.releaseWhenSent()
	}
}

// newRequest is http.NewRequestWithContext optimized for a body in memory and an ordinary URL. headers is the
// approximate number of headers.
func newRequest(ctx context.Context, method, to string, body []byte, headers int) (*http.Request, error) {
	h := &memoryBody{}
	if !parsePlainURL(to, &h.url) {
		return http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	}
	r := &http.Request{
		Method: method, URL: &h.url, Host: h.url.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: make(http.Header, headers), Body: http.NoBody, GetBody: getNoBody,
	}
	if len(body) > 0 {
		h.setBody(openai.NewEditedBody(body))
		r.Body, r.GetBody, r.ContentLength = h, h.reopenBody, int64(len(body))
	}
	return r.WithContext(ctx), nil
}

func getNoBody() (io.ReadCloser, error) { return http.NoBody, nil }

// parsePlainURL parses a URL with a scheme, a host and a path of letters, digits and a few marks, with the
// result of url.Parse. It returns false for any other.
func parsePlainURL(s string, u *url.URL) bool {
	scheme, rest, ok := strings.Cut(s, "://")
	at := strings.IndexByte(rest, '/')
	if !ok || scheme != "http" && scheme != "https" || at <= 0 {
		return false
	}
	host, path := rest[:at], rest[at:]
	for i := range len(path) {
		if c := path[i]; !isAlphanumeric(c) && c != '/' && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	name, port, ported := strings.Cut(host, ":")
	for i := range len(name) {
		if c := name[i]; !isAlphanumeric(c) && c != '-' && c != '.' {
			return false
		}
	}
	for i := range len(port) {
		if port[i] < '0' || port[i] > '9' {
			return false
		}
	}
	if name == "" || ported && port == "" {
		return false
	}
	*u = url.URL{Scheme: scheme, Host: host, Path: path}
	return true
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

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
