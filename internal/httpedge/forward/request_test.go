package forward

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/spillway-lb/spillway/internal/openai"
)

// TestParsePlainURLAgreesWithNetURL: URLs parsed by parsePlainURL equal those of net/url.
func TestParsePlainURLAgreesWithNetURL(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(
			rapid.StringMatching(`https?://[a-z0-9.-]{0,8}(:[0-9]{0,5})?/[A-Za-z0-9/._-]{0,20}`),
			rapid.StringMatching(`(http|https|ftp|HTTP)?(://|:/|/)[a-z@:\\[\\]%.0-9-]{0,10}/?[ -~]{0,12}`),
		).Draw(t, "url")
		var got url.URL
		if !parsePlainURL(s, &got) {
			return
		}
		want, err := url.Parse(s)
		if err != nil || *want != got {
			t.Fatalf("%q is %+v and not %+v, %v", s, got, want, err)
		}
	})
	var u url.URL
	for _, s := range []string{"http://127.0.0.1:8000/v1/chat/completions", "https://worker-1.zone/v1/embeddings"} {
		if !parsePlainURL(s, &u) || u.String() != s {
			t.Errorf("%q is read as %q", s, u.String())
		}
	}
	for _, s := range []string{"http://[::1]:80/v1", "http://h/v1?a=b", "http://h/%2f", "http://u@h/", "http://h:/", "http://h", "unix://h/"} {
		if parsePlainURL(s, &u) {
			t.Errorf("%q is no matter of the short way", s)
		}
	}
}

// TestReleasedBodyIsSentWholeAndThenFreed: a body may be released before, while and after it is sent. It is
// sent completely, then freed, and not resent.
func TestReleasedBodyIsSentWholeAndThenFreed(t *testing.T) {
	const raw = `{"model":"small","prompt":"the prompt"}`
	var env openai.Envelope
	if err := openai.ScanBody(openai.ShapeCompletions, []byte(raw), &env); err != nil {
		t.Fatal(err)
	}
	edited := openai.NewEditedBody([]byte(raw))
	edited.SetModel(&env, "another")
	for name, w := range map[string]openai.EditedBody{"as it came": openai.NewEditedBody([]byte(raw)), "rewritten": edited} {
		whole := string(w.Bytes())
		for first := range len(whole) + 1 {
			r, err := http.NewRequest(http.MethodPost, "http://worker/v1/completions", nil)
			if err != nil {
				t.Fatal(err)
			}
			setRequestBody(r, &w)
			h := r.Body.(*memoryBody)
			begin := make([]byte, first)
			if _, err := io.ReadFull(h, begin); err != nil {
				t.Fatal(err)
			}
			again, err := r.GetBody()
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(again); string(text) != whole || err != nil {
				t.Fatalf("%s: sent again as %q, %v", name, text, err)
			}
			releaseBody(r)
			if _, err := r.GetBody(); !errors.Is(err, errBodyReleased) {
				t.Fatalf("%s: after it was dropped it is sent again: %v", name, err)
			}
			rest, err := io.ReadAll(h)
			if text := string(begin) + string(rest); text != whole || err != nil {
				t.Fatalf("%s, dropped after %d bytes: %q is sent, %v", name, first, text, err)
			}
			if h.body.Len() != 0 || h.editedReader != nil || h.plainReader.Size() != 0 {
				t.Fatalf("%s, dropped after %d bytes: it is kept", name, first)
			}
		}
	}
}

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
