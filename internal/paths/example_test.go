package paths_test

import (
	"fmt"
	"net/url"

	"github.com/spillway-lb/spillway/internal/paths"
)

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
