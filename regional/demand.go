package regional

import (
	"math"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/regional/zone"
)

const (
	demandWindow = 10 * time.Second // time constant of the decay
	maxDemand    = 4 * capacity.MaxDemand
	// decodeCost is what one output token costs in prefill tokens where no worker was measured, and the bounds of what
	// measurements may make of it.
	decodeCost, minDecodeCost, maxDecodeCost = 8.0, 1.0, 32.0
	// outputGain is the weight of one answer in the learned output length.
	outputGain = 0.05
)

// demand is what clients asked for lately, refused or not, by service, model and cell. Amounts decay, so that it is a
// rate. It has one writer at a time.
type demand struct {
	flows   map[flow]*rate
	outputs map[string]float64 // learned output tokens of a request by model
	heavy   *heavies
}

type flow struct{ service, model, cell string }

type rate struct {
	tokens, requests float64
	at               time.Time
}

func newDemand() *demand {
	return &demand{flows: map[flow]*rate{}, outputs: map[string]float64{}, heavy: newHeavies()}
}

// offer counts one request.
func (d *demand) offer(f flow, tokens float64, now time.Time) {
	r := d.flows[f]
	if r == nil {
		if len(d.flows) >= maxDemand && !d.drop(now) {
			return
		}
		r = &rate{at: now}
		d.flows[f] = r
	}
	r.decay(now)
	r.tokens += tokens
	r.requests++
}

// drop makes room by forgetting the smallest flow.
func (d *demand) drop(now time.Time) bool {
	var least *rate
	var which flow
	for f, r := range d.flows {
		if r.decay(now); least == nil || r.tokens < least.tokens {
			least, which = r, f
		}
	}
	delete(d.flows, which)
	return least != nil
}

func (r *rate) decay(now time.Time) {
	if dt := now.Sub(r.at); dt > 0 {
		k := math.Exp(-dt.Seconds() / demandWindow.Seconds())
		r.tokens, r.requests, r.at = r.tokens*k, r.requests*k, now
	}
}

// rates lists the flows that are still felt, as and in the order in which a summary carries them, and forgets the others.
func (d *demand) rates(now time.Time) []capacity.Demand {
	out := make([]capacity.Demand, 0, len(d.flows))
	for f, r := range d.flows {
		r.decay(now)
		if r.requests < 1e-3 {
			delete(d.flows, f)
			continue
		}
		out = append(out, capacity.Demand{
			Service: f.service, Model: f.model, Cell: f.cell,
			TokensPerSec:        int64(math.Ceil(r.tokens / demandWindow.Seconds())),
			RequestsPerSecMilli: int64(math.Ceil(r.requests / demandWindow.Seconds() * 1000)),
		})
	}
	slices.SortFunc(out, capacity.Demand.Compare)
	return out
}

// outputCost is what one output token of a model costs in prefill tokens, by the rates of the region's workers.
func outputCost(v *zone.View, model string) float64 {
	var prefill, decode int64
	for i := range v.Locals {
		if m := v.Locals[i].Summary.Model(model); m != nil {
			prefill += m.PrefillRate()
			decode += m.DecodeRate()
		}
	}
	if prefill <= 0 || decode <= 0 {
		return decodeCost
	}
	return min(max(float64(prefill)/float64(decode), minDecodeCost), maxDecodeCost)
}

// learn takes the output length of a finished answer.
func (d *demand) learn(model string, output int) {
	if old, ok := d.outputs[model]; ok {
		d.outputs[model] = old + outputGain*(float64(output)-old)
		return
	}
	d.outputs[model] = float64(output)
}

// expected is the output length to reckon with: what was learned, and never more than was allowed.
func (d *demand) expected(model string, limit int) int {
	n, ok := d.outputs[model]
	if !ok {
		return min(limit, 256)
	}
	return min(limit, int(math.Ceil(n)))
}
