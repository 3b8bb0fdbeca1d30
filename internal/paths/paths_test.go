package paths_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/paths"
)

func matchURL(t testing.TB, p paths.PathProtocol, raw string, extra ...string) (openai.Shape, bool) {
	u, err := url.ParseRequestURI(raw)
	if err != nil {
		t.Skip(err)
	}
	return paths.MatchPath(p, u, extra)
}

func TestOnlyListedPathsPass(t *testing.T) {
	for _, p := range paths.DefaultPaths() {
		p = strings.ReplaceAll(p, "{model}", "org%2Fm")
		proto := paths.HTTP
		if p == paths.RealtimePath {
			proto = paths.WebSocket
		}
		if _, ok := matchURL(t, proto, p+"?a=b"); !ok {
			t.Errorf("%s does not pass", p)
		}
		for _, trick := range []string{p + "/", "/" + p, strings.ToUpper(p), p + "%00", p + ";x", strings.Replace(p, "/", "/./", 1), strings.Replace(p, "/", "/x/../", 1), p[:2] + "%" + "6" + p[2:]} {
			for _, proto := range []paths.PathProtocol{paths.HTTP, paths.WebSocket, paths.GRPC} {
				if _, ok := matchURL(t, proto, trick); ok {
					t.Errorf("%s passes", trick)
				}
			}
		}
	}
	for _, m := range paths.ManagementPaths() {
		for _, proto := range []paths.PathProtocol{paths.HTTP, paths.WebSocket, paths.GRPC} {
			if _, ok := matchURL(t, proto, m, "/v1/{any}", "/{any}", "/{a}/{b}", "/v1/*", "/x/*", "/v2/*", "/api/*", "/inference.GRPCInferenceService/*"); ok {
				t.Errorf("%s passes by a wildcard", m)
			}
			if _, ok := matchURL(t, proto, m, m); !ok {
				t.Errorf("%s does not pass though it is written out", m)
			}
		}
	}
	for _, tc := range []struct {
		path, extra string
		want        bool
	}{
		{"/generate", "", false},
		{"/generate", "/generate", true},
		{"/custom/a/run", "/custom/{name}/run", true},
		{"/custom/a/b/run", "/custom/{name}/run", false},
		{"/custom//run", "/custom/{name}/run", false},
		{"/custom/../run", "/custom/{name}/run", false},
		{"/custom/a%2Fb/run", "/custom/{name}/run", false},
		{"/custom/a/b/c", "/custom/*", true},
		{"/custom/", "/custom/*", false},
		{"/custom/a/../../sleep", "/custom/*", false},
		{"/custom", "/custom/*", false},
		{"/custom/a/", "/custom/{name}", false},
	} {
		if _, ok := matchURL(t, paths.HTTP, tc.path, tc.extra); ok != tc.want {
			t.Errorf("%s with %q: %v", tc.path, tc.extra, ok)
		}
	}
	if shape, _ := matchURL(t, paths.HTTP, "/api/chat", "/api/chat"); shape != openai.ShapeOllama {
		t.Errorf("an added path has shape %d", shape)
	}
}

func TestCheckPattern(t *testing.T) {
	for _, p := range []string{"/api/chat", "/generate", "/custom/{name}/run", "/custom/*", "/pkg.Service/Method", "/any.Service/*", "/sleep"} {
		if err := paths.CheckPattern(p); err != nil {
			t.Errorf("%s: %v", p, err)
		}
	}
	for _, p := range []string{"", "api/chat", "/", "/*", "/a//b", "/a/", "/a/../b", "/a%2Fb", "/a/*/b", "/a*", "/{a}b", "/api/*", "/v1/*", "/{x}", "/v2/repository/*", "/inference.GRPCInferenceService/*", "/" + strings.Repeat("a", 300)} {
		if err := paths.CheckPattern(p); err == nil {
			t.Errorf("%s is taken", p)
		}
	}
}

// FuzzMatchPath: a forwarded path has exactly one spelling, and no wildcard matches a management path.
func FuzzMatchPath(f *testing.F) {
	f.Add("/v1/chat/completions", "/custom/*")
	f.Add("/custom/%2e%2e/sleep", "/custom/{x}/sleep")
	f.Fuzz(func(t *testing.T, raw, extra string) {
		if paths.CheckPattern(extra) != nil {
			return
		}
		for _, proto := range []paths.PathProtocol{paths.HTTP, paths.WebSocket, paths.GRPC} {
			if _, ok := matchURL(t, proto, raw, extra); !ok {
				continue
			}
			path, _, _ := strings.Cut(raw, "?")
			for s := range strings.SplitSeq(strings.TrimPrefix(path, "/v2/models/"), "/") {
				if s == "." || s == ".." {
					t.Fatalf("%s passes", raw)
				}
			}
			if paths.IsManagementPath(path) && path != extra {
				t.Fatalf("%s passes by %s", raw, extra)
			}
		}
	})
}

// Inference paths are forwarded, management paths of engines are not, even if a wildcard of routing.extra_paths matches.
func ExampleMatchPath() {
	for _, path := range []string{"/v1/chat/completions", "/v1/load_lora_adapter", "/api/chat"} {
		_, ok := paths.MatchPath(paths.HTTP, &url.URL{Path: path}, nil)
		_, extra := paths.MatchPath(paths.HTTP, &url.URL{Path: path}, []string{"/v1/*", "/api/chat"})
		fmt.Println(path, ok, extra)
	}
	// Output:
	// /v1/chat/completions true true
	// /v1/load_lora_adapter false false
	// /api/chat false true
}
