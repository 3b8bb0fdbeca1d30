package spec_test

import (
	"fmt"

	"github.com/spillway-lb/spillway/internal/spec"
)

// A mistake is reported with its position and what to write instead.
func ExampleDecodeStandalone() {
	_, err := spec.DecodeStandalone("spec.yaml", []byte("routing: {policy: round-robin}\n"))
	fmt.Println(err)
	s, err := spec.DecodeStandalone("spec.yaml", []byte("routing: {policy: round_robin}\n"))
	fmt.Println(s.Routing.Policy, err)
	// Output:
	// spec.yaml:1:19: unknown policy "round-robin"
	//     1 | routing: {policy: round-robin}
	//       |                   ^
	//   hint: did you mean "round_robin"?
	// round_robin <nil>
}
