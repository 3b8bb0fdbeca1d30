package steer

import "github.com/spillway-lb/spillway/internal/spec"

// fleetIndex finds the regions, services, models and cells of a PlanInput by name. Indexes are those of the input's
// slices; models are numbered in the order of the spec, then of the reports.
type fleetIndex struct {
	regions        []spec.Region // at most MaxRegions
	regionIndexes  map[string]int
	serviceIndexes map[string]int
	cellIndexes    map[string]int
	modelIndexes   map[string]int
}

func newFleetIndex(in *PlanInput) *fleetIndex {
	x := &fleetIndex{
		regions:       in.Spec.Regions[:min(len(in.Spec.Regions), MaxRegions)],
		regionIndexes: map[string]int{}, serviceIndexes: make(map[string]int, len(in.Spec.Services)),
		cellIndexes: make(map[string]int, len(in.Cells)), modelIndexes: map[string]int{},
	}
	for r := range x.regions {
		if _, twice := x.regionIndexes[x.regions[r].Name]; !twice {
			x.regionIndexes[x.regions[r].Name] = r
		}
	}
	for i := range in.Spec.Services {
		x.serviceIndexes[in.Spec.Services[i].Name] = i
	}
	for i := range in.Cells {
		x.cellIndexes[in.Cells[i].Name] = i
	}
	for _, m := range in.Spec.Models {
		x.addModel(m.Name)
	}
	for i := range in.Regions {
		for _, m := range in.Regions[i].Models {
			x.addModel(m.Name)
		}
	}
	return x
}

func (x *fleetIndex) addModel(name string) {
	if _, known := x.modelIndexes[name]; !known {
		x.modelIndexes[name] = len(x.modelIndexes)
	}
}

func (x *fleetIndex) modelCount() int { return len(x.modelIndexes) }

// modelNames is the names of the models by index.
func (x *fleetIndex) modelNames() []string {
	out := make([]string, len(x.modelIndexes))
	for name, m := range x.modelIndexes {
		out[m] = name
	}
	return out
}

// findRegion is the index of the named region, or -1.
func (x *fleetIndex) findRegion(name string) int { return findIndex(x.regionIndexes, name) }

// findService is the index of the named service, or -1.
func (x *fleetIndex) findService(name string) int { return findIndex(x.serviceIndexes, name) }

// findCell is the index of the named cell, or -1 when its location is unknown.
func (x *fleetIndex) findCell(name string) int { return findIndex(x.cellIndexes, name) }

func findIndex(indexes map[string]int, name string) int {
	if i, ok := indexes[name]; ok {
		return i
	}
	return -1
}
