package http1

import (
	"net/url"
	"testing"

	"pgregory.net/rapid"
)

// TestIsPlainPathAgreesWithNetURL: a target accepted as a plain path is the same path to net/url.
func TestIsPlainPathAgreesWithNetURL(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := "/" + rapid.OneOf(rapid.StringMatching(`[a-z0-9_./-]{0,20}`), rapid.StringMatching(`[a-z/.%2f:?#@;~!-]{0,12}`)).Draw(t, "target")
		if !isPlainPath(s) {
			return
		}
		u, err := url.ParseRequestURI(s)
		if err != nil || *u != (url.URL{Path: s}) {
			t.Fatalf("%q is %+v, %v", s, u, err)
		}
	})
	if !isPlainPath("/v1/chat/completions") || isPlainPath("//host/path") || isPlainPath("/a?b") || isPlainPath("/%41") {
		t.Fatal("plain is not what it says")
	}
}
