package steer

import (
	"math/rand/v2"
	"testing"
)

// TestWhatIsRememberedCostsNothing solves a wandering world with and without a Memory. Each model's own market is exact
// either way; what a service of several models makes of it is found by polishing, from two different beginnings, so single
// plans differ by a few per cent, and on the mean they are as good.
func TestWhatIsRememberedCostsNothing(t *testing.T) {
	in := planet(120, 12, true)
	rng := rand.New(rand.NewPCG(3, 3))
	var memory Memory
	var sumA, sumB float64
	for epoch := range 12 {
		with := shake(rng, in)
		if epoch%4 == 3 {
			with.Demand = with.Demand[rng.IntN(len(with.Demand)/3):]
		}
		without := *with
		with.Memory = &memory
		a, b := Solve(with), Solve(&without)
		sumA, sumB = sumA+a.Cost, sumB+b.Cost
		if a.Cost > b.Cost*1.04 {
			t.Errorf("epoch %d: %v s with memory, %v s without", epoch, a.Cost, b.Cost)
		}
		in.Prev = b.Plan
	}
	t.Logf("%.4f s on the mean with memory, %.4f s without", sumA/12, sumB/12)
	if sumA > sumB*1.01 {
		t.Errorf("%.4f s on the mean with memory, %.4f s without", sumA/12, sumB/12)
	}
	if len(memory.models) != 12 || len(memory.kinds) == 0 {
		t.Errorf("%d models and %d kinds are remembered", len(memory.models), len(memory.kinds))
	}
}

func TestMemoryTakesFarFewerSteps(t *testing.T) {
	in := planet(100, 6, true)
	rng := rand.New(rand.NewPCG(4, 4))
	steps := func(in *Input) int {
		p := newProblem(in)
		p.placeFixed()
		p.look()
		var f flow
		p.placeWith(&f)
		return f.augs
	}
	in.Memory = new(Memory)
	cold := steps(in)
	next := shake(rng, in)
	warm := steps(next)
	t.Logf("%d augmentations cold, %d warm", cold, warm)
	if warm*3 > cold {
		t.Errorf("%d augmentations cold, %d warm", cold, warm)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	var memory Memory
	for epoch := range 20 {
		in := planet(20, 3, true)
		in.Memory = &memory
		for i := range in.Cells { // other places every time
			in.Cells[i].Name = string(rune('a'+epoch)) + in.Cells[i].Name
		}
		for i := range in.Demand {
			in.Demand[i].Cell = string(rune('a'+epoch)) + in.Demand[i].Cell
		}
		Solve(in)
	}
	for name, a := range memory.models {
		if len(a.rows) > 100 || len(memory.kinds) > 100 {
			t.Errorf("%s: %d rows of %d kinds are kept for 20 cells", name, len(a.rows), len(memory.kinds))
		}
	}
}
