package experiment_test

import (
	"errors"
	"slices"
	"time"

	"github.com/spillway-lb/spillway/chaos/experiment"
	"github.com/spillway-lb/spillway/chaos/fleet"
)

// spillPhase is the results of the first region's clients in one phase.
type spillPhase struct {
	Sent, Failed, Late int // Late: the first byte came after experiment.StepTargetTTFT
	Spilled            int // served by another region
	TTFTs              []time.Duration
}

// TTFTQuantile is a quantile of the times to the first byte.
func (p *spillPhase) TTFTQuantile(q float64) time.Duration {
	if len(p.TTFTs) == 0 {
		return 0
	}
	slices.Sort(p.TTFTs)
	return p.TTFTs[min(int(q*float64(len(p.TTFTs))), len(p.TTFTs)-1)]
}

func (p *spillPhase) addReply(r fleet.HTTPReply, away bool) {
	p.Sent++
	if r.Err != nil || r.Status != 200 || r.FirstByteAfter == 0 {
		p.Failed++
		return
	}
	p.TTFTs = append(p.TTFTs, r.FirstByteAfter)
	if r.FirstByteAfter > experiment.StepTargetTTFT {
		p.Late++
	}
	if away {
		p.Spilled++
	}
}

// spillResult is the result of a run.
type spillResult struct {
	Before, Halved, After spillPhase
	Others                spillPhase // clients of the other regions, while the first one is halved
	Slots                 []int      // requests of the first region's clients that others served, by time slot
	ServedForOthers       int        // requests of others' clients that the halved region served
	Spilled, Refused      float64
	HeldByReason          map[string]float64 // by reason
	PeerOutcomes          map[string]float64 // by outcome
	Jumps                 int                // slots in which the spilled fraction changed by more than half, after it settled
}

var errNothingSent = errors.New("nothing was sent")

// checkRun reports whether a run has usable results.
func (r *spillResult) checkRun() error {
	if r.Before.Sent == 0 || r.Halved.Sent == 0 {
		return errNothingSent
	}
	return nil
}
