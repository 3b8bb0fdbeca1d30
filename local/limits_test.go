package local_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/admin"
	"github.com/spillway-lb/spillway/internal/testkit"
	"github.com/spillway-lb/spillway/local"
	"github.com/spillway-lb/spillway/local/discover"
)

// TestRefusalNamesTheContextLimitInForce: a sequence is limited to its slot, though the cache of all four slots would
// hold it. Checked with /props, and with /slots alone.
func TestRefusalNamesTheContextLimitInForce(t *testing.T) {
	slots := `[` + strings.Repeat(`{"is_processing":false,"n_ctx":2048},`, 3) + `{"is_processing":false,"n_ctx":2048}]`
	for name, pages := range map[string]map[string]string{
		"props": {"/props": `{"total_slots":4,"default_generation_settings":{"n_ctx":2048}}`, "/slots": slots},
		"slots": {"/slots": slots},
	} {
		t.Run(name, func(t *testing.T) {
			pages["/health"], pages["/v1/models"] = "ok", `{"data":[{"id":"m","owned_by":"llamacpp"}]}`
			s := newPlainServer(t, pages)
			a := startAgent(t, func(c *local.Config) { c.Workers = []discover.Worker{{Name: "w1", URL: s.URL}} })
			testkit.Eventually(t, "it is ready, with its slots", func() bool {
				w := workerStatus(a, "w1")
				return w.KVTotal == 4*2048 && len(w.Models) == 1 && countReady(a) == 1
			})
			resp, text := postChat(t, a, fmt.Sprintf(`{"model":"m","max_tokens":16,"messages":[{"role":"user","content":%q}]}`, strings.Repeat("word ", 2400)))
			if resp.StatusCode != http.StatusBadRequest || !strings.Contains(text, "takes 2048") {
				t.Errorf("%d %s", resp.StatusCode, text)
			}
			// A 1 x 1 pixel image is far less than a thousand tokens.
			resp, text = postChat(t, a, `{"model":"m","max_tokens":16,"messages":[{"role":"user","content":[{"type":"text","text":"`+strings.Repeat("word ", 900)+
				`"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="}}]}]}`)
			if resp.StatusCode == http.StatusBadRequest {
				t.Errorf("a small image: %d %s", resp.StatusCode, text)
			}
		})
	}
}

// TestExplainDoesNotCorrectGivenTokenCount: an explicit token count is not corrected by the learned ratio.
func TestExplainDoesNotCorrectGivenTokenCount(t *testing.T) {
	a := startAgent(t, nil, newFakeVLLM(t, "w1"))
	long := strings.Replace(nonStreamingChat, `"hi"`, `"`+strings.Repeat("word ", 400)+`"`, 1) // the worker reports 5 tokens for it
	for range 10 {
		if resp, text := postChat(t, a, long); resp.StatusCode != http.StatusOK {
			t.Fatalf("%d %s", resp.StatusCode, text)
		}
	}
	recs, err := a.Explain(admin.ExplainQuery{Model: "llama-3.1-8b", PromptTokens: 1000})
	if err != nil || len(recs) != 1 || !strings.Contains(recs[0].Query, "prompt=1000") {
		t.Errorf("%+v, %v", recs, err)
	}
}
