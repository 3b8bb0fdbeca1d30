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

// RateWindow is the interval of a client's rates.
const RateWindow = rateWindow

// ClientRate is the demand of one ServeGen client over a whole trace.
type ClientRate struct {
	// ID is the client's, and Region the index of its region.
	ID     uint64
	Region int32
	// Tokens are those of its prompts and answers per second, by window, in its region's local time.
	Tokens []float64
}

// ClientRates returns the demand of the clients of the workload's models, as in w5: the same clients in the same
// regions.
func (w Workload) ClientRates() ([]ClientRate, error) {
	if err := w.applyDefaults(); err != nil {
		return nil, err
	}
	models, err := w.readModels()
	if err != nil {
		return nil, err
	}
	var out []ClientRate
	for i, m := range models {
		for _, number := range slices.Sorted(maps.Keys(m.rates)) {
			id := w.clientID(i, number)
			c := ClientRate{ID: id, Region: w.regionOfSession(id), Tokens: make([]float64, m.windows)}
			offset := int((w.From + w.Regions[c.Region].Shift) / rateWindow)
			for _, r := range m.rates[number] {
				at := ((int(r.window)-offset)%m.windows + m.windows) % m.windows
				c.Tokens[at] = float64(r.rate) * m.meanTokens(number, r.window)
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// meanTokens is the mean of a client's prompts plus answers, or of all clients if it has no lengths of its own.
func (m *serveGenModel) meanTokens(client int, at int32) float64 {
	list := m.lengths[client]
	if len(list) == 0 {
		var sum, before float64
		for i := range m.pooled {
			sum += (m.weights[i] - before) * (m.pooled[i].in.mean + m.pooled[i].out.mean)
			before = m.weights[i]
		}
		return sum / max(before, 1e-9)
	}
	i := 0
	for i+1 < len(list) && list[i+1].window <= at {
		i++
	}
	return list[i].in.mean + list[i].out.mean
}

// clientID is the ID of a model's client.
func (w *Workload) clientID(model, number int) uint64 {
	return mixBits(w.Seed ^ mixBits(uint64(model)<<32|uint64(number)|1<<53))
}
