package spec_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-lb/spillway/internal/spec"
)

// sizedSpec returns a spec with the given number of regions, and of gateways in each.
func sizedSpec(regions, gateways int) string {
	var b strings.Builder
	b.WriteString("zone: {name: api.example., nameservers: [{name: ns1.api.example., addresses: [192.0.2.1]}]}\nservices: [{name: chat.api.example.}]\nmodels: [{name: m}]\nregions:\n")
	for r := range regions {
		fmt.Fprintf(&b, "  - name: r%d\n    place: {city: X, lat: 1, lon: 1}\n    gateways:\n", r)
		for g := range gateways {
			fmt.Fprintf(&b, "      - {name: g%d, addresses: [10.%d.%d.%d], url: \"http://g%d.r%d.example\"}\n", g, r/256, r%256, g+1, g, r)
		}
	}
	return b.String()
}

func TestRegionsAndGatewaysAreBounded(t *testing.T) {
	for _, at := range [][2]int{{1, spec.MaxGateways}, {spec.MaxRegions, 1}} {
		if _, err := spec.Decode("spec", []byte(sizedSpec(at[0], at[1]))); err != nil {
			t.Errorf("%d regions, %d gateways: %v", at[0], at[1], err)
		}
	}
	for at, want := range map[[2]int]string{
		{1, spec.MaxGateways + 1}: `region "r0" has 65 gateways, at most 64 are possible`,
		{spec.MaxRegions + 1, 1}:  "there are 257 regions, at most 256 can be steered",
	} {
		if _, err := spec.Decode("spec", []byte(sizedSpec(at[0], at[1]))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d regions, %d gateways: %v", at[0], at[1], err)
		}
	}
}
