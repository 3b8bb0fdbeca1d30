package relay

import (
	"net/url"
	"testing"

	"pgregory.net/rapid"
)

// TestPlainURL: what the short way reads, the library reads the same.
func TestPlainURL(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(
			rapid.StringMatching(`https?://[a-z0-9.-]{0,8}(:[0-9]{0,5})?/[A-Za-z0-9/._-]{0,20}`),
			rapid.StringMatching(`(http|https|ftp|HTTP)?(://|:/|/)[a-z@:\\[\\]%.0-9-]{0,10}/?[ -~]{0,12}`),
		).Draw(t, "url")
		var got url.URL
		if !plainURL(s, &got) {
			return
		}
		want, err := url.Parse(s)
		if err != nil || *want != got {
			t.Fatalf("%q is %+v and not %+v, %v", s, got, want, err)
		}
	})
	var u url.URL
	for _, s := range []string{"http://127.0.0.1:8000/v1/chat/completions", "https://worker-1.zone/v1/embeddings"} {
		if !plainURL(s, &u) || u.String() != s {
			t.Errorf("%q is read as %q", s, u.String())
		}
	}
	for _, s := range []string{"http://[::1]:80/v1", "http://h/v1?a=b", "http://h/%2f", "http://u@h/", "http://h:/", "http://h", "unix://h/"} {
		if plainURL(s, &u) {
			t.Errorf("%q is no matter of the short way", s)
		}
	}
}
