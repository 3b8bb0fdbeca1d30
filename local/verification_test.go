package local

import (
	"net/http"
	"testing"

	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/local/batch"
)

// TestBatchOfTwoTenantsImplicatesNeither: its answer may be due to either.
func TestBatchOfTwoTenantsImplicatesNeither(t *testing.T) {
	of := func(names ...string) string {
		var visits []*zoneRequest
		var parts []*batch.RequestPart
		for _, n := range names {
			part, ok := batch.ReadEmbeddings([]byte(`{"model":"m","input":"hi"}`))
			if !ok {
				t.Fatal("a request that cannot be merged")
			}
			v := newZoneRequest(&http.Request{URL: newPathURL(openai.PathEmbeddings), Header: http.Header{}}, openai.ShapeEmbeddings)
			v.Tenant = n
			visits, parts = append(visits, v), append(parts, part)
		}
		return mergeRequests(t.Context(), visits, parts).TenantOfAnswer()
	}
	for want, names := range map[string][]string{"ann": {"ann"}, "bob": {"bob", "bob"}, "": {"ann", "ann", "bob"}} {
		if got := of(names...); got != want {
			t.Errorf("%v: %q, want %q", names, got, want)
		}
	}
}
