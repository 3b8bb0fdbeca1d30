package wire

import (
	"net/url"
	"testing"

	"pgregory.net/rapid"
)

// TestPlainPath: a target that is taken for a plain path is one to the library too, and nothing else.
func TestPlainPath(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := "/" + rapid.OneOf(rapid.StringMatching(`[a-z0-9_./-]{0,20}`), rapid.StringMatching(`[a-z/.%2f:?#@;~!-]{0,12}`)).Draw(t, "target")
		if !plainPath(s) {
			return
		}
		u, err := url.ParseRequestURI(s)
		if err != nil || *u != (url.URL{Path: s}) {
			t.Fatalf("%q is %+v, %v", s, u, err)
		}
	})
	if !plainPath("/v1/chat/completions") || plainPath("//host/path") || plainPath("/a?b") || plainPath("/%41") {
		t.Fatal("plain is not what it says")
	}
}
