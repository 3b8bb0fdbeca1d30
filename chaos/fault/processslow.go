package fault

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// slowPeriod is the time in which a slowed process is continued and stopped once: longer than the scheduler's slices,
// shorter than the time-outs of the tiers.
const slowPeriod = 40 * time.Millisecond

// processSlow slows processes by stopping them for a part of each slowPeriod.
type processSlow struct {
	files *fleet.Files

	mu    sync.Mutex
	stops map[string]func() // by lease: ends its cycle and waits for it
}

func newProcessSlow(p *fleet.Files) *processSlow {
	return &processSlow{files: p, stops: map[string]func(){}}
}

func (k *processSlow) findVictims(s Spec) ([]string, error) {
	return (&processPause{k.files}).findVictims(s)
}

func (k *processSlow) apply(_ context.Context, l *lease) error {
	in, _ := FindKind(l.Spec.Kind)
	factor, err := strconv.ParseFloat(in.param(l.Spec, "factor"), 64)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stops[l.Spec.ID] != nil { // renewed
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		k.cycle(ctx, l.Victims, time.Duration(float64(slowPeriod)/factor))
	}()
	k.stops[l.Spec.ID] = func() {
		cancel()
		<-done
	}
	return nil
}

// cycle stops the nodes after run of each period, until ctx is done.
func (k *processSlow) cycle(ctx context.Context, ids []string, run time.Duration) {
	wait := func(d time.Duration) bool {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for wait(run) {
		signalNodes(k.files, ids, pauseProcess)
		over := wait(slowPeriod - run)
		signalNodes(k.files, ids, continueProcess)
		if !over {
			return
		}
	}
}

func (k *processSlow) clear(_ context.Context, l *lease) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if stop := k.stops[l.Spec.ID]; stop != nil {
		stop()
		delete(k.stops, l.Spec.ID)
	}
	return signalNodes(k.files, l.Victims, continueProcess)
}

// slowSamples is how often a probe looks at each process, over several periods.
const slowSamples = 60

func (k *processSlow) probe(ctx context.Context, l *lease) (bool, string, error) {
	stopped := make([]int, len(l.Victims))
	for range slowSamples {
		for i, id := range l.Victims {
			if readProcessState(k.files.RunningPID(id)) == stateStopped {
				stopped[i]++
			}
		}
		select {
		case <-ctx.Done():
			return false, "", ctx.Err()
		case <-time.After(slowPeriod / 17): // not a divisor of the period
		}
	}
	var text []string
	slowed := 0
	for i, id := range l.Victims {
		text = append(text, fmt.Sprintf("%s stopped at %d of %d looks", id, stopped[i], slowSamples))
		if stopped[i] > 0 {
			slowed++
		}
	}
	if l.Ended {
		return slowed > 0, strings.Join(text, ", "), nil
	}
	return slowed == len(l.Victims), strings.Join(text, ", "), nil
}
