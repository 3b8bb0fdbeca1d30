package local_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/local/discover"
)

// TestURLQueryReachesWorkerUnchanged: some engines require a query (?api-version=...), which only they can interpret.
func TestURLQueryReachesWorkerUnchanged(t *testing.T) {
	asked := make(chan string, 1)
	a := startAgentWith(t, nil, newChatWorker(t, "w1", func(w http.ResponseWriter, r *http.Request) {
		asked <- r.RequestURI
		_, _ = io.WriteString(w, `{"choices":[]}`)
	}))
	for _, query := range []string{"", "?api-version=2024-10-21", "?a=1&a=2&b", "?x=%2Fy%20z+%C3%A9&%zz=;", "?q=http://other/v1"} {
		resp, err := testClient.Post("http://"+a.Addr().String()+"/v1/chat/completions"+query, "application/json", strings.NewReader(`{"model":"m","messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := <-asked; resp.StatusCode != http.StatusOK || got != "/v1/chat/completions"+query {
			t.Errorf("query %q reached the worker as %q, and the answer was %d", query, got, resp.StatusCode)
		}
	}
}

// TestWorkerWeightBoundsAreTheSameEverywhere: the config and the zone accept the same weights.
func TestWorkerWeightBoundsAreTheSameEverywhere(t *testing.T) {
	for _, c := range []struct {
		weight string
		taken  bool
	}{{"0.001", true}, {"1000", true}, {"1000.5", false}, {"0", false}, {"-1", false}, {".inf", false}, {".nan", false}} {
		list := fmt.Sprintf("workers:\n  - {name: w1, url: \"http://10.0.1.21:8000\", weight: %s}\n", c.weight)
		_, err := config.Decode("local.yaml", []byte("role: local\nname: l1\nregion: fra\nzone: a\nhttp: {listen: \"127.0.0.1:0\", plain: true}\n"+list))
		_, err2 := discover.DecodeWorkers("workers.yaml", []byte(list))
		if (err == nil) != c.taken || (err2 == nil) != c.taken {
			t.Errorf("weight %s: config error %v, workers file error %v", c.weight, err, err2)
		}
	}
}
