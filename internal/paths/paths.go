package paths

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spillway-lb/spillway/internal/grpcwire"
	"github.com/spillway-lb/spillway/internal/openai"
)

// Protocol is how a request comes.
type Protocol uint8

// The protocols.
const (
	// HTTP is a POST whose body is read whole.
	HTTP Protocol = iota
	// WebSocket is an upgrade (RFC 6455).
	WebSocket
	// GRPC is a call: the path is /package.Service/Method.
	GRPC
)

// Realtime is the one WebSocket path that passes by default.
const Realtime = "/v1/realtime"

// Find reports whether a request to u passes, and the shape of its body. extra is the spec's routing.extra_paths. An
// extra path passes by each protocol.
func Find(p Protocol, u *url.URL, extra []string) (shape openai.Shape, ok bool) {
	path := u.EscapedPath()
	if p == HTTP {
		shape = openai.ShapeOf(path)
	}
	if passes(p, path, shape) {
		return shape, true
	}
	for _, pattern := range extra {
		if pattern == path || match(pattern, path) && !Manages(path) {
			return shape, true
		}
	}
	return openai.ShapeUnknown, false
}

// passes reports whether a path passes by default.
func passes(p Protocol, path string, shape openai.Shape) bool {
	switch p {
	case WebSocket:
		return path == Realtime
	case GRPC:
		method, ok := strings.CutPrefix(path, grpcwire.Service)
		if !ok {
			return false
		}
		switch method {
		case "ModelInfer", "ModelStreamInfer", "ModelMetadata", "ModelReady", "ServerLive", "ServerReady", "ServerMetadata":
			return true
		}
		return false
	}
	switch shape {
	case openai.ShapeUnknown, openai.ShapeOllama, openai.ShapeOllamaEmbed, openai.ShapeNative, openai.ShapeLlamaCPP:
		return false
	}
	return true
}

// Defaults are the paths that pass without being added, as patterns, for documents and error messages.
func Defaults() []string {
	return []string{
		openai.PathChat, openai.PathCompletions, openai.PathEmbeddings, openai.PathResponses, openai.PathMessages, openai.PathCountTokens,
		"/v1/audio/transcriptions", "/v1/audio/translations", "/v1/audio/speech",
		"/v1/images/generations", "/v1/images/edits", "/v1/images/variations",
		"/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score", "/tokenize", "/detokenize", "/v1/tokenize", "/v1/detokenize",
		"/v2/models/{model}/infer", "/v2/models/{model}/generate", "/v2/models/{model}/generate_stream", Realtime,
	}
}

// NotFoundMessage is the message of the 404 answer to a path that does not pass. It quotes 64 bytes of the path at most.
func NotFoundMessage(path string) string {
	return "no such path: " + strconv.Quote(path[:min(len(path), 64)]) + " (served: " + openai.PathModels + "[/MODEL], " +
		strings.Join(Defaults(), ", ") + ", and those of routing.extra_paths)"
}

// match reports whether a path has the form of a pattern: equal segments, but that {name} takes one segment and a last *
// takes the rest. What a wildcard takes is plain: letters, digits and the marks - _ . ~ : @ without escapes, and no
// segment that is empty or of dots.
func match(pattern, path string) bool {
	for {
		var want, have string
		var more, left bool
		want, pattern, more = strings.Cut(pattern, "/")
		if want == "*" && !more {
			for s := range strings.SplitSeq(path, "/") {
				if !plain(s) {
					return false
				}
			}
			return true
		}
		have, path, left = strings.Cut(path, "/")
		named := len(want) > 2 && want[0] == '{' && want[len(want)-1] == '}'
		if named && !plain(have) || !named && want != have || more != left {
			return false
		}
		if !more {
			return true
		}
	}
}

// plain reports whether a segment means itself to every server.
func plain(s string) bool {
	if s == "" || strings.Trim(s, ".") == "" {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-_.~:@", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// MaxExtra bounds how many paths a spec may add: each request to a path that is not known is compared with all of them.
const MaxExtra = 64

// Check says what is wrong with a pattern of routing.extra_paths; nil when nothing is.
func Check(pattern string) error {
	rest, ok := strings.CutPrefix(pattern, "/")
	switch {
	case !ok:
		return fmt.Errorf("the path %q does not begin with /", pattern)
	case len(pattern) > 256:
		return errors.New("the path is longer than 256 bytes")
	}
	wild := false
	segments := strings.Split(rest, "/")
	for i, s := range segments {
		name, opened := strings.CutPrefix(s, "{")
		name, closed := strings.CutSuffix(name, "}")
		switch {
		case s == "*" && i == len(segments)-1 && i > 0, opened && closed && plain(name):
			wild = true
		case !plain(s):
			return fmt.Errorf("the segment %q of %q is neither plain (letters, digits, - _ . ~ : @), nor {name}, nor a * at the end", s, pattern)
		}
	}
	if !wild {
		return nil
	}
	for _, m := range Management() {
		if match(pattern, m) {
			return fmt.Errorf("%q covers %s, which manages an engine", pattern, m)
		}
	}
	return nil
}
