package batch_test

import (
	"fmt"

	"github.com/spillway-lb/spillway/local/batch"
)

// Embeddings that differ in their inputs only become one call.
func ExampleMergeParts() {
	a, _ := batch.ReadEmbeddings([]byte(`{"model":"e","input":"one"}`))
	b, _ := batch.ReadEmbeddings([]byte(`{"model":"e","input":"two"}`))
	c, _ := batch.ReadEmbeddings([]byte(`{"model":"e","input":"three","dimensions":64}`))
	fmt.Println(a.CanMergeWith(b), a.CanMergeWith(c))
	fmt.Println(string(batch.MergeParts([]*batch.RequestPart{a, b})))
	// Output:
	// true false
	// {"model":"e","input":["one","two"]}
}
