package forward

import (
	"net/http"
	"strings"
	"testing"
)

func TestClientRequestIDAcceptsOnlyLoggableValues(t *testing.T) {
	for _, c := range []struct{ own, general, want string }{
		{"", "", ""},
		{"", "trace-1", "trace-1"},
		{"mine", "trace-1", "mine"},
		{"two words", "trace-1", "trace-1"},
		{"", "line\nbreak", ""},
		{"", "h\u00e9", ""},
		{"", strings.Repeat("x", 128), strings.Repeat("x", 128)},
		{"", strings.Repeat("x", 129), ""},
	} {
		h := http.Header{}
		if c.own != "" {
			h["X-Client-Request-Id"] = []string{c.own}
		}
		if c.general != "" {
			h["X-Request-Id"] = []string{c.general}
		}
		if got := ClientRequestID(h); got != c.want {
			t.Errorf("%q and %q: %q, want %q", c.own, c.general, got, c.want)
		}
	}
}
