package load

import (
	"container/heap"
	"maps"
	"slices"
)

// defaultServeGenModels are the default models.
var defaultServeGenModels = []string{"m-large", "m-mid", "m-small"}

// readModels reads the request data of the workload's models, in the models' order; of all models if it names none.
func (w *Workload) readModels() (models []*serveGenModel, err error) {
	if len(w.Models) == 0 {
		w.Models = defaultServeGenModels
	}
	for _, name := range w.Models {
		rates, lengths, err := serveGenFiles(name)
		if err != nil {
			return nil, err
		}
		if rates, err = w.publicTrace(rates); err != nil {
			return nil, err
		}
		if lengths, err = w.publicTrace(lengths); err != nil {
			return nil, err
		}
		m, err := readServeGen(name, rates, lengths)
		if err != nil {
			return nil, err
		}
		models = append(models, m)
	}
	return models, nil
}

func (w *Workload) openServeGen() (RootSource, error) {
	models, err := w.readModels()
	if err != nil {
		return nil, err
	}
	var total float64
	for _, m := range models {
		total += m.meanRate()
	}
	speed := 1.0
	if w.Rate > 0 {
		speed = w.Rate / total
	}
	p := &serveGenSource{workload: w}
	tenants := int32(0)
	for i, m := range models {
		for _, number := range slices.Sorted(maps.Keys(m.rates)) {
			id := w.clientID(i, number)
			c := &serveGenClient{model: m, number: number, id: id, modelIndex: int32(i), tenant: tenants, speed: speed, region: w.regionOfSession(id)}
			c.offset = int((w.From + w.Regions[c.region].Shift) / rateWindow)
			tenants++
			if c.advanceArrival() {
				p.clients = append(p.clients, c)
			}
		}
	}
	heap.Init(&p.clients)
	return p, nil
}
