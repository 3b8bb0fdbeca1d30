package steer_test

import (
	"fmt"
	"net/netip"

	"github.com/spillway-lb/spillway/global/steer"
	"github.com/spillway-lb/spillway/internal/spec"
)

// A service with weights sends each client network to one region. A small change of the weights moves few networks.
func ExampleTable_PickRegion() {
	tableOf := func(weights map[string]float64) *steer.Table {
		return steer.CompileTable(&spec.Spec{
			Services: []spec.Service{{Name: "chat.api.example.", Mode: "weighted", Weights: weights}},
			Models:   []spec.Model{{Name: "llama-8b"}},
			Regions:  []spec.Region{{Name: "fra"}, {Name: "iad"}},
		}, nil, nil)
	}
	before, after := tableOf(map[string]float64{"fra": 50, "iad": 50}), tableOf(map[string]float64{"fra": 45, "iad": 55})
	var counts [2]int
	moved := 0
	const networks = 10_000
	for i := range networks {
		network := netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1})
		q := steer.PickQuery{Cell: -1, Key: steer.NetworkKey(network)}
		a, b := before.PickRegion(&q).Region, after.PickRegion(&q).Region
		counts[a]++
		if a != b {
			moved++
		}
	}
	fmt.Printf("fra %.1f, iad %.1f of the networks; the change moves %.2f\n",
		float64(counts[0])/networks, float64(counts[1])/networks, float64(moved)/networks)
	// Output: fra 0.5, iad 0.5 of the networks; the change moves 0.05
}
