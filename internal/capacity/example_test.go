package capacity_test

import (
	"fmt"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

// A region is the merge of its zones: amounts add up, in any order.
func ExampleMergeSummaries() {
	a := capacity.Summary{
		Path:   capacity.Path{Region: "fra", Zone: "a", Instance: "l1"},
		Models: []*capacity.ModelCapacity{{Name: "llama-8b", Ready: 2, Total: 2, KVFree: 500_000}},
	}
	b := capacity.Summary{
		Path:   capacity.Path{Region: "fra", Zone: "b", Instance: "l1"},
		Models: []*capacity.ModelCapacity{{Name: "llama-8b", Ready: 1, Total: 3, KVFree: 200_000}, {Name: "qwen-7b", Ready: 4, Total: 4}},
	}
	region := capacity.MergeSummaries(a, b)
	for _, m := range region.Models {
		fmt.Printf("%s %s: %d of %d ready, %d KV tokens free\n", region.Path, m.Name, m.Ready, m.Total, m.KVFree)
	}
	// Output:
	// fra llama-8b: 3 of 5 ready, 700000 KV tokens free
	// fra qwen-7b: 4 of 4 ready, 0 KV tokens free
}

// The work before a request adds up, so the wait of the whole follows from the merged rate.
func ExampleModelCapacity_PredictWait() {
	var work [spec.NumClasses]int64
	work[spec.Standard] = 6000
	m := capacity.ModelCapacity{
		Name: "llama-8b", Ready: 2, WorkAhead: work,
		Hardware: []capacity.HardwareRates{{Name: "H100", Ready: 2, PrefillRate: 12_000, DecodeRate: 2000}},
	}
	wait, ok := m.PredictWait(spec.Standard)
	fmt.Println(wait, ok)
	// Output: 500ms true
}
