package global

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A service without redirect_proxy proxies clients that request it: by Prefer, or as an SDK that refuses redirects to
// another host. The others are redirected.
func TestSDKsThatRefuseRedirectsAreProxied(t *testing.T) {
	s := &Server{}
	s.snapshot.Store(newStaticSnapshot(t))
	p := &requestProxy{s: s}
	for name, c := range map[string]struct {
		agent, prefer string
		want          bool
	}{
		"openai-go v3":                       {"OpenAI/Go 3.96.0", "", true},
		"a later openai-go":                  {"OpenAI/Go 12.0.0-beta", "", true},
		"openai-go v3 that wants a redirect": {"OpenAI/Go 3.96.0", "redirect", false},
		"openai-go v1":                       {"OpenAI/Go 1.12.0", "", false},
		"openai-python":                      {"OpenAI/Python 2.0.0", "", false},
		"no version":                         {"OpenAI/Go ", "", false},
		"another name":                       {"NotOpenAI/Go 3.96.0", "", false},
		"curl":                               {"curl/8.5", "", false},
		"a client that requests it":          {"curl/8.5", "proxy", true},
	} {
		r := httptest.NewRequest(http.MethodPost, "http://chat.api.example/v1/chat/completions", nil)
		r.Header.Set("User-Agent", c.agent)
		if c.prefer != "" {
			r.Header.Set("Prefer", c.prefer)
		}
		if got := p.shouldProxy(r); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
