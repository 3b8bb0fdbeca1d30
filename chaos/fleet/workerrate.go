package fleet

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
)

// WorkerRate is the rate of requests of one shape that one worker of a fleet in memory serves under saturation, in requests/s.
func WorkerRate(prompt, output int) (float64, error) {
	profile, err := gpu.LookupProfile(memoryGPU, memoryModel, 0)
	if err != nil {
		return 0, fmt.Errorf("selecting the simulated worker: %w", err)
	}
	engine, err := gpu.NewEngine(gpu.EngineConfig{Profile: profile, Rand: rand.New(rand.NewPCG(1, 1))})
	if err != nil {
		return 0, err
	}
	const requests, counted = 400, 300 // the last ones run alone on the worker
	now := time.Unix(0, 0)
	for i := range requests {
		if _, err := engine.Submit(now, gpu.EngineRequest{PromptTokens: prompt, OutputTokens: output, Owner: i}); err != nil {
			return 0, fmt.Errorf("sending to the simulated worker: %w", err)
		}
	}
	for done := 0; done < counted; {
		next, ok := engine.NextEvent()
		if !ok {
			return 0, errors.New("the simulated worker is idle before all requests are done")
		}
		now = next
		for _, s := range engine.AdvanceTo(now) {
			if s.IsDone() {
				done++
			}
		}
	}
	return counted / now.Sub(time.Unix(0, 0)).Seconds(), nil
}
