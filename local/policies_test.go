package local_test

import (
	"slices"
	"testing"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/pick"
)

// What a spec may name, the chooser must know, under the same name, and the other way round.
func TestSpecAndPickHaveTheSamePolicies(t *testing.T) {
	for i, name := range spec.WorkerPolicies() {
		p, err := pick.ParsePolicy(name)
		if err != nil {
			t.Errorf("a spec may name the policy %q, and no worker is chosen by it: %v", name, err)
		}
		if p.String() != name {
			t.Errorf("policy %q is chosen as %q", name, p)
		}
		if slices.Index(spec.WorkerPolicies(), name) != i {
			t.Errorf("policy %q is there twice", name)
		}
	}
	for p := pick.Policy(0); ; p++ {
		parsed, err := pick.ParsePolicy(p.String())
		if err != nil || parsed != p {
			if p == 0 {
				t.Fatal("the chooser knows no policy")
			}
			return // past the last
		}
		if !slices.Contains(spec.WorkerPolicies(), p.String()) {
			t.Errorf("workers are chosen by the policy %q, and no spec may name it", p)
		}
	}
}
