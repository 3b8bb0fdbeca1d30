package global

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/global/steer"
)

// TestCheckSpecCompilesTheTable: a spec with the maximum number of regions and equal weights passes the check before
// the Raft log and becomes a nodePolicy, whose table the snapshotBuilder compiles on every node.
func TestCheckSpecCompilesTheTable(t *testing.T) {
	for _, n := range []int{200, 201, steer.MaxRegions} {
		var regions, weights strings.Builder
		for r := range n {
			fmt.Fprintf(&regions, "  - {name: r%03d, place: {lat: 39, lon: 8}, gateways: [{name: g, addresses: [10.0.1.%d], url: \"http://10.0.1.%d:8080\"}]}\n", r, r, r)
			fmt.Fprintf(&weights, "      r%03d: 0.1\n", r)
		}
		text := "zone:\n  name: api.example.\n  nameservers: [{name: ns1.api.example., addresses: [10.0.0.1]}]\nservices:\n  - name: chat.api.example.\n    mode: weighted\n    weights:\n" +
			weights.String() + "regions:\n" + regions.String() + "models:\n  - name: m1\n"
		if err := checkSpec(nil, []byte(text)); err != nil {
			t.Fatalf("%d regions: %v", n, err)
		}
	}
}
