package local_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/local/discover"
)

// TestZoneAcceptsNewModelNamesWithoutLimit: one worker serves one model, which changes its name more often than there may be models at
// once. Each new name is served.
func TestZoneAcceptsNewModelNamesWithoutLimit(t *testing.T) {
	s := newPlainServer(t, nil)
	a := startAgent(t, nil)
	for i := range capacity.MaxModels + 20 {
		name := fmt.Sprint("adapter-", i)
		a.SetWorkers([]discover.Worker{{Name: "w1", URL: s.URL, Models: []string{name}, Engine: "openai"}})
		if sum := a.Summary(time.Now()); i > capacity.MaxModels-2 && sum.FindModel(name) == nil {
			t.Fatalf("after %d names %s is not served", i, name)
		}
	}
}
