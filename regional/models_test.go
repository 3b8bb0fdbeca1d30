package regional_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestGetSingleModel: official clients request one model by its name, which may contain slashes.
func TestGetSingleModel(t *testing.T) {
	w := newWorld(t)
	g := w.startGateway("fra", nil)
	w.startLocal(g, "fra", "fra-a", replyCompletion, roomyModel("small"))
	w.waitUntilServed(g, "small")
	for path, want := range map[string]string{
		"/v1/models/small": `"id":"small"`, "/v1/models/no%2Fsuch": `"code":"model_not_found"`, "/v1/models": `"object":"list"`,
	} {
		req, err := http.NewRequest(http.MethodGet, "http://"+g.HTTPAddr().String()+path, nil)
		requireNoError(t, err)
		req.Header.Set("Authorization", "Bearer key-acme")
		resp, err := newClient(t).Do(req)
		requireNoError(t, err)
		var b strings.Builder
		requireNoError(t, resp.Write(&b))
		_ = resp.Body.Close()
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s: %s", path, b.String())
		}
	}
	if resp, body := w.getAnswer(g, clientCall{method: "HEAD", path: "/v1/models", key: "key-acme"}); resp.StatusCode != 200 || body != "" {
		t.Errorf("HEAD: %d %q", resp.StatusCode, body)
	}
}
