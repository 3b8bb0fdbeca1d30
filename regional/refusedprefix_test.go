package regional_test

import (
	"net/http"
	"strings"
	"testing"
)

// A request that is refused for its deadline leaves no prefix behind: asked again, it is refused again.
func TestARefusedRequestLeavesNoPrefix(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	a := w.local(g, "fra", "fra-a", reply, small("small"))
	b := w.local(g, "fra", "fra-b", reply, small("small"))
	long := `{"model":"small","max_tokens":5,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 6_000) + `"}]}`
	eventually(t, "both zones serve", func() bool {
		resp, _ := w.ask(g, call{key: "key-acme", body: `{"model":"small","messages":[{"role":"user","content":"hi"}]}`})
		return resp.StatusCode == 200 && len(a.hits) > 0 && len(b.hits) > 0
	})
	late := http.Header{"X-Spillway-Deadline-Ms": {"20"}}
	for range 3 {
		if resp, text := w.ask(g, call{key: "key-acme", body: long, header: late}); resp.StatusCode != 504 {
			t.Fatalf("%d %.200s", resp.StatusCode, text)
		}
	}
}
