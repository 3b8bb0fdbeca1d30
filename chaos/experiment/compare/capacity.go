package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
)

// measureCapacity is how many requests per second one healthy worker serves under saturation, in virtual time.
func measureCapacity(o *compareOptions) (float64, error) {
	profile, err := gpu.LookupProfile(o.gpu, o.model, 0)
	if err != nil {
		return 0, fmt.Errorf("selecting the simulated worker: %w", err)
	}
	engine, err := gpu.NewEngine(gpu.EngineConfig{Profile: profile, Rand: rand.New(rand.NewPCG(1, 1))})
	if err != nil {
		return 0, err
	}
	source, err := o.newArrivals(1, 1, 0)
	if err != nil {
		return 0, err
	}
	const requests, counted = 2000, 1500 // the last ones run alone on the worker
	now := time.Unix(0, 0)
	for i := range requests {
		a, err := source.NextArrival()
		if err != nil {
			return 0, err
		}
		if _, err := engine.Submit(now, gpu.EngineRequest{PromptTokens: a.PromptTokens(), OutputTokens: a.Output, Owner: i}); err != nil {
			return 0, fmt.Errorf("sending request %d to the virtual worker: %w", i, err)
		}
	}
	begun := now
	for done := 0; done < counted; {
		next, ok := engine.NextEvent()
		if !ok {
			break
		}
		now = next
		for _, s := range engine.AdvanceTo(now) {
			if s.IsDone() {
				done++
			}
		}
	}
	return counted / now.Sub(begun).Seconds(), nil
}

// newArrivals are the same for every policy and seed: chats of different lengths, a third of each prompt shared by an
// eighth of the users.
func (o *compareOptions) newArrivals(seed uint64, rate float64, span time.Duration) (load.ArrivalSource, error) {
	return load.NewPoissonSource(load.PoissonConfig{Rate: rate, For: span, Prompt: o.prompt, Output: o.output, Groups: 8, PrefixTokens: 160, Seed: seed})
}
