package steer

import (
	"math/rand/v2"
	"testing"
)

// TestSolverMemoryKeepsTheCost solves changing demand with and without a SolverMemory. Each model's own problem is
// solved exactly either way; improveShares of multi-model services starts from different points, so single plans
// differ by a few percent, and their mean is equal.
func TestSolverMemoryKeepsTheCost(t *testing.T) {
	in := newWorldInput(120, 12, true)
	rng := rand.New(rand.NewPCG(3, 3))
	var memory SolverMemory
	var sumA, sumB float64
	for epoch := range 12 {
		with := addDemandNoise(rng, in)
		if epoch%4 == 3 {
			with.Demand = with.Demand[rng.IntN(len(with.Demand)/3):]
		}
		without := *with
		with.Memory = &memory
		a, b := SolvePlan(with), SolvePlan(&without)
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
	if len(memory.models) != 12 || len(memory.classes) == 0 {
		t.Errorf("%d models and %d kinds are remembered", len(memory.models), len(memory.classes))
	}
}

func TestSolverMemorySavesSteps(t *testing.T) {
	in := newWorldInput(100, 6, true)
	rng := rand.New(rand.NewPCG(4, 4))
	steps := func(in *PlanInput) int {
		p := newProblem(in)
		p.placeFixed(in.Regions)
		if prev := newPlanView(p.index, in.Prev); prev != nil {
			prev.readCurrentShares(p.units)
		}
		var f flowSolver
		newDemandPlacer(in, p, &f).placeDemand()
		return f.augmentations
	}
	in.Memory = new(SolverMemory)
	cold := steps(in)
	next := addDemandNoise(rng, in)
	warm := steps(next)
	t.Logf("%d augmentations cold, %d warm", cold, warm)
	if warm*3 > cold {
		t.Errorf("%d augmentations cold, %d warm", cold, warm)
	}
}

func TestSolverMemoryIsBounded(t *testing.T) {
	var memory SolverMemory
	for epoch := range 20 {
		in := newWorldInput(20, 3, true)
		in.Memory = &memory
		for i := range in.Cells { // new cells every time
			in.Cells[i].Name = string(rune('a'+epoch)) + in.Cells[i].Name
		}
		for i := range in.Demand {
			in.Demand[i].Cell = string(rune('a'+epoch)) + in.Demand[i].Cell
		}
		SolvePlan(in)
	}
	for name, a := range memory.models {
		if len(a.sharesByClass) > 100 || len(memory.classes) > 100 {
			t.Errorf("%s: %d rows of %d kinds are kept for 20 cells", name, len(a.sharesByClass), len(memory.classes))
		}
	}
}
