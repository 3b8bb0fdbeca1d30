package capacity

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/capacity/capacitypb"
)

// TTFTBuckets is the number of buckets of a TTFTHistogram: four for each doubling, from 1 ms to about a minute.
const TTFTBuckets = 64

// TTFTHistogram is a histogram of times to first token. Bucket i counts times up to TTFTBound(i); the last bucket
// counts all others.
type TTFTHistogram [TTFTBuckets]int64

// TTFTBound returns the upper bound of a bucket; for the last, which has none, the value that would follow.
func TTFTBound(i int) time.Duration {
	return time.Duration(float64(time.Millisecond) * math.Exp2(float64(i+1)/4))
}

// TTFTBucket returns the bucket that counts a time.
func TTFTBucket(d time.Duration) int {
	if d <= time.Millisecond {
		return 0
	}
	i := int(math.Ceil(4*math.Log2(d.Seconds()*1000))) - 1
	return min(max(i, 0), TTFTBuckets-1)
}

// OutcomeCounts counts the results of the client requests for one service and model at a gateway, while one spec was in
// force there. The guard of a staged spec uses them; they are reported only during a stage.
type OutcomeCounts struct {
	// Stage is the number of the stage during which the requests arrived; 0: in the minutes before the present stage.
	Stage          uint64
	Service, Model string // empty if the request failed before they were known
	// Requests counts answered requests: those with a first byte, and those that were refused. Requests whose clients
	// left before are not counted.
	Requests int64
	// Failures counts the requests that Spillway or an engine failed: a 5xx answer, or an answer that broke off.
	Failures int64
	// Refused counts requests answered with 4xx.
	Refused int64
	// TTFT counts the times from arrival to first byte of 2xx answers.
	TTFT TTFTHistogram

	unknown string // see Summary
}

func compareOutcome(a, b OutcomeCounts) int {
	if c := cmp.Compare(a.Stage, b.Stage); c != 0 {
		return c
	}
	return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Model, b.Model))
}

func mergeOutcome(a, b OutcomeCounts) OutcomeCounts {
	o := OutcomeCounts{Stage: a.Stage, Service: a.Service, Model: a.Model}
	o.AddCounts(&a)
	o.AddCounts(&b)
	return o
}

// AddCounts adds another's counts, for any key.
func (o *OutcomeCounts) AddCounts(x *OutcomeCounts) {
	o.Requests, o.Failures, o.Refused = addAmounts(o.Requests, x.Requests), addAmounts(o.Failures, x.Failures), addAmounts(o.Refused, x.Refused)
	for i := range o.TTFT {
		o.TTFT[i] = addAmounts(o.TTFT[i], x.TTFT[i])
	}
}

// normalizeFields limits amounts to their range. It returns false for an entry that cannot be corrected.
func (o *OutcomeCounts) normalizeFields() bool {
	o.Requests, o.Failures, o.Refused = clampToRange(o.Requests), clampToRange(o.Failures), clampToRange(o.Refused)
	for i := range o.TTFT {
		o.TTFT[i] = clampToRange(o.TTFT[i])
	}
	return cmp.Or(checkName("", o.Service, true), checkName("", o.Model, true)) == nil
}

func checkOutcomes(os []OutcomeCounts) error {
	if len(os) > MaxOutcomes {
		return fmt.Errorf("%d outcomes: over the limit of %d", len(os), MaxOutcomes)
	}
	for i := range os {
		o := &os[i]
		if i > 0 && compareOutcome(os[i-1], *o) >= 0 {
			return errors.New("outcomes are not in ascending order")
		}
		if err := cmp.Or(checkName("service", o.Service, true), checkName("model", o.Model, true),
			checkAmount(o.Requests), checkAmount(o.Failures), checkAmount(o.Refused)); err != nil {
			return err
		}
		for _, n := range o.TTFT {
			if err := checkAmount(n); err != nil {
				return err
			}
		}
	}
	return nil
}

// diffOutcomes returns the entries of next that base does not contain, and the keys of those that are only in base.
func diffOutcomes(base, next []OutcomeCounts) (changed, removed []OutcomeCounts) {
	for i := range next {
		if at, ok := slices.BinarySearchFunc(base, next[i], compareOutcome); !ok || base[at] != next[i] {
			changed = append(changed, next[i])
		}
	}
	for i := range base {
		if _, ok := slices.BinarySearchFunc(next, base[i], compareOutcome); !ok {
			removed = append(removed, OutcomeCounts{Stage: base[i].Stage, Service: base[i].Service, Model: base[i].Model})
		}
	}
	return changed, removed
}

func (d *SummaryDelta) remainingOutcomes(held []OutcomeCounts) []OutcomeCounts {
	return dropMatching(held, func(o *OutcomeCounts) bool {
		_, gone := slices.BinarySearchFunc(d.RemovedOutcomes, *o, compareOutcome)
		return gone
	})
}

func (d *SummaryDelta) checkOutcomes() error {
	if err := checkOutcomes(d.RemovedOutcomes); err != nil {
		return fmt.Errorf("removed: %w", err)
	}
	return checkOutcomes(d.Outcomes)
}

func outcomesToPB(os []OutcomeCounts) []*capacitypb.Outcome {
	out := make([]*capacitypb.Outcome, len(os))
	for i := range os {
		o := &os[i]
		p := &capacitypb.Outcome{
			Stage: o.Stage, Service: o.Service, Model: o.Model,
			Requests: uint64(o.Requests), Faults: uint64(o.Failures), Refused: uint64(o.Refused),
		}
		first, last := 0, len(o.TTFT)
		for first < last && o.TTFT[first] == 0 {
			first++
		}
		for last > first && o.TTFT[last-1] == 0 {
			last--
		}
		if first < last {
			p.TtftFirst = uint32(first)
		}
		for _, n := range o.TTFT[first:last] {
			p.Ttft = append(p.Ttft, uint64(n))
		}
		setUnknown(p, o.unknown)
		out[i] = p
	}
	return out
}

func outcomesFromPB(ps []*capacitypb.Outcome) ([]OutcomeCounts, error) {
	if len(ps) > MaxOutcomes {
		return nil, fmt.Errorf("%d outcomes: over the limit of %d", len(ps), MaxOutcomes)
	}
	var out []OutcomeCounts
	for _, p := range ps {
		if uint64(p.TtftFirst)+uint64(len(p.Ttft)) > TTFTBuckets {
			return nil, fmt.Errorf("times to first token in buckets up to %d: there are %d", uint64(p.TtftFirst)+uint64(len(p.Ttft)), TTFTBuckets)
		}
		o := OutcomeCounts{
			Stage: p.Stage, Service: p.Service, Model: p.Model,
			Requests: toAmount(p.Requests), Failures: toAmount(p.Faults), Refused: toAmount(p.Refused), unknown: getUnknown(p),
		}
		for i, n := range p.Ttft {
			o.TTFT[int(p.TtftFirst)+i] = toAmount(n)
		}
		out = append(out, o)
	}
	return out, nil
}

func outcomeKeysToPB(os []OutcomeCounts) (out []*capacitypb.OutcomeKey) {
	for i := range os {
		out = append(out, &capacitypb.OutcomeKey{Stage: os[i].Stage, Service: os[i].Service, Model: os[i].Model})
	}
	return out
}

func outcomeKeysFromPB(ps []*capacitypb.OutcomeKey) (out []OutcomeCounts) {
	for _, p := range ps {
		out = append(out, OutcomeCounts{Stage: p.Stage, Service: p.Service, Model: p.Model})
	}
	return out
}
