package regional_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/testkit"
)

// A request refused for its deadline records no cached prefix, so that it is refused again when it is repeated.
func TestRefusedRequestRecordsNoPrefix(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	a := w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	b := w.startLocal(g, "fra", "fra-b", replyCompletion, roomyModel("small"))
	long := `{"model":"small","max_tokens":5,"messages":[{"role":"user","content":"` + strings.Repeat("word ", 6_000) + `"}]}`
	testkit.Eventually(t, "both zones serve", func() bool {
		resp, _ := w.getAnswer(g, clientCall{key: "key-acme", body: `{"model":"small","messages":[{"role":"user","content":"hi"}]}`})
		return resp.StatusCode == 200 && len(a.requests) > 0 && len(b.requests) > 0
	})
	late := http.Header{"X-Spillway-Deadline-Ms": {"20"}}
	for range 3 {
		if resp, text := w.getAnswer(g, clientCall{key: "key-acme", body: long, header: late}); resp.StatusCode != 504 {
			t.Fatalf("%d %.200s", resp.StatusCode, text)
		}
	}
}
