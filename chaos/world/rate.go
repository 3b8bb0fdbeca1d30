package world

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
)

// Rate is how many requests of a shape one worker answers per second when there is always another.
func Rate(prompt, output int) (float64, error) {
	profile, err := gpu.Lookup(GPU, Model, 0)
	if err != nil {
		return 0, fmt.Errorf("choosing the stand-in workers: %w", err)
	}
	engine, err := gpu.NewEngine(gpu.EngineConfig{Profile: profile, Rand: rand.New(rand.NewPCG(1, 1))})
	if err != nil {
		return 0, err
	}
	const requests, counted = 400, 300 // the last ones have the worker to themselves
	now := time.Unix(0, 0)
	for i := range requests {
		if _, err := engine.Submit(now, gpu.Request{PromptTokens: prompt, OutputTokens: output, Owner: i}); err != nil {
			return 0, fmt.Errorf("asking the stand-in worker: %w", err)
		}
	}
	for done := 0; done < counted; {
		next, ok := engine.Next()
		if !ok {
			return 0, errors.New("the stand-in worker has nothing to do and is not done")
		}
		now = next
		for _, s := range engine.Advance(now) {
			if s.Done() {
				done++
			}
		}
	}
	return counted / now.Sub(time.Unix(0, 0)).Seconds(), nil
}
