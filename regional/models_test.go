package regional_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestOneModel: official clients ask for one model by its name, which may have slashes.
func TestOneModel(t *testing.T) {
	w := newWorld(t)
	g := w.gateway("fra", nil)
	w.local(g, "fra", "fra-a", reply, small("small"))
	w.served(g, "small")
	for path, want := range map[string]string{
		"/v1/models/small": `"id":"small"`, "/v1/models/no%2Fsuch": `"code":"model_not_found"`, "/v1/models": `"object":"list"`,
	} {
		req, err := http.NewRequest(http.MethodGet, "http://"+g.HTTPAddr().String()+path, nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer key-acme")
		resp, err := client(t).Do(req)
		must(t, err)
		var b strings.Builder
		must(t, resp.Write(&b))
		_ = resp.Body.Close()
		if !strings.Contains(b.String(), want) {
			t.Errorf("%s: %s", path, b.String())
		}
	}
}
