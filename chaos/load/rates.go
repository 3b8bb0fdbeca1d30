package load

import (
	"maps"
	"slices"
)

// RateWindow is the time over which a client's rate is given.
const RateWindow = window

// ClientRate is what one of ServeGen's clients asks over a whole trace.
type ClientRate struct {
	// ID is the client's, and Region the workload's region where it is at home.
	ID     uint64
	Region int32
	// Tokens are those of its prompts and answers per second, by window, with its region's local time.
	Tokens []float64
}

// Rates returns what the clients of the workload's models ask, as w5 plays it: the same clients at home in the same regions.
func (w Workload) Rates() ([]ClientRate, error) {
	if err := w.complete(); err != nil {
		return nil, err
	}
	models, err := w.planetModels()
	if err != nil {
		return nil, err
	}
	var out []ClientRate
	for i, m := range models {
		for _, number := range slices.Sorted(maps.Keys(m.rates)) {
			id := w.client(i, number)
			c := ClientRate{ID: id, Region: w.region(id), Tokens: make([]float64, m.windows)}
			offset := int((w.From + w.Regions[c.Region].Shift) / window)
			for _, r := range m.rates[number] {
				at := ((int(r.window)-offset)%m.windows + m.windows) % m.windows
				c.Tokens[at] = float64(r.rate) * m.tokens(number, r.window)
			}
			out = append(out, c)
		}
	}
	return out, nil
}

// tokens is the mean of a client's prompts and answers together, or of everybody's where it has no lengths of its own.
func (m *genModel) tokens(client int, at int32) float64 {
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
