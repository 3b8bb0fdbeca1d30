// Package demand measures what clients demand of a gateway: the rates by service, model and cell of their location, the
// client networks with the most demand, and the output lengths of models.
//
// Requests are counted whether they are served or not. Amounts decay over time and memory is bounded.
package demand

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
)

const (
	// rateWindow is the time constant of the decay.
	rateWindow = 10 * time.Second
	// maxFlows bounds the flows; the smallest is evicted.
	maxFlows = 4 * capacity.MaxDemand
	// outputGain is the weight of one response in the learned output length.
	outputGain = 0.05
	// defaultOutput is the expected output before a response was seen, in tokens.
	defaultOutput = 256
)

// Tracker holds the recent demand of clients, refused or not, by service, model and cell. Amounts decay, so
// they are rates. It has one writer at a time.
type Tracker struct {
	rateByKey    map[Flow]*decayingRate
	outputTokens map[string]float64 // learned output tokens per request, by model
	heavyHitters *heavyHitterTable
}

// Flow is the demand of the clients in one cell for one model of a service.
type Flow struct{ Service, Model, Cell string }

type decayingRate struct {
	tokens, requests float64
	updatedAt        time.Time
}

// NewTracker returns a tracker without demand.
func NewTracker() *Tracker {
	return &Tracker{rateByKey: map[Flow]*decayingRate{}, outputTokens: map[string]float64{}, heavyHitters: newHeavyHitterTable()}
}

// AddRequest counts one request of a client.
func (d *Tracker) AddRequest(f Flow, client netip.Addr, tokens float64, now time.Time) {
	d.addRate(f, tokens, now)
	d.heavyHitters.addRequest(f.Service, f.Cell, client, tokens, now)
}

// FillSummary writes the demand and the heavy hitters into a summary.
func (d *Tracker) FillSummary(s *capacity.Summary, now time.Time) {
	s.Demand = d.listRates(now)
	s.Networks = d.heavyHitters.reportHeavyHitters(s.Demand, now)
}

func (d *Tracker) addRate(f Flow, tokens float64, now time.Time) {
	r := d.rateByKey[f]
	if r == nil {
		if len(d.rateByKey) >= maxFlows && !d.evictSmallest(now) {
			return
		}
		r = &decayingRate{updatedAt: now}
		d.rateByKey[f] = r
	}
	r.decayTo(now)
	r.tokens += tokens
	r.requests++
}

// evictSmallest makes room by deleting the smallest flow.
func (d *Tracker) evictSmallest(now time.Time) bool {
	var least *decayingRate
	var which Flow
	for f, r := range d.rateByKey {
		if r.decayTo(now); least == nil || r.tokens < least.tokens {
			least, which = r, f
		}
	}
	delete(d.rateByKey, which)
	return least != nil
}

func (r *decayingRate) decayTo(now time.Time) {
	if dt := now.Sub(r.updatedAt); dt > 0 {
		k := math.Exp(-dt.Seconds() / rateWindow.Seconds())
		r.tokens, r.requests, r.updatedAt = r.tokens*k, r.requests*k, now
	}
}

// listRates lists the flows above the reporting threshold in the order of a summary, and deletes the others.
func (d *Tracker) listRates(now time.Time) []capacity.CellDemand {
	out := make([]capacity.CellDemand, 0, len(d.rateByKey))
	for f, r := range d.rateByKey {
		r.decayTo(now)
		if r.requests < 1e-3 {
			delete(d.rateByKey, f)
			continue
		}
		out = append(out, capacity.CellDemand{
			Service: f.Service, Model: f.Model, Cell: f.Cell,
			TokensPerSec:        int64(math.Ceil(r.tokens / rateWindow.Seconds())),
			RequestsPerSecMilli: int64(math.Ceil(r.requests / rateWindow.Seconds() * 1000)),
		})
	}
	slices.SortFunc(out, capacity.CellDemand.Compare)
	return out
}

// LearnOutputLength records the output length of a finished response.
func (d *Tracker) LearnOutputLength(model string, output int) {
	if old, ok := d.outputTokens[model]; ok {
		d.outputTokens[model] = old + outputGain*(float64(output)-old)
		return
	}
	d.outputTokens[model] = float64(output)
}

// ExpectedOutput returns the expected output length: the learned one, at most limit.
func (d *Tracker) ExpectedOutput(model string, limit int) int {
	n, ok := d.outputTokens[model]
	if !ok {
		return min(limit, defaultOutput)
	}
	return min(limit, int(math.Ceil(n)))
}

// OutputLimit returns the longest response of a model to a request for asked tokens; 0 for no particular limit.
func OutputLimit(m *spec.Model, asked int) int {
	if asked == 0 {
		asked = m.MaxOutput
	}
	if m.OutputLimit > 0 {
		asked = min(asked, m.OutputLimit)
	}
	return asked
}
