package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
)

// capacity is how many such requests a second one healthy worker can do when there is always another, in virtual time.
func capacity(o *options) (float64, error) {
	profile, err := gpu.Lookup(o.gpu, o.model, 0)
	if err != nil {
		return 0, fmt.Errorf("choosing the stand-in workers: %w", err)
	}
	engine, err := gpu.NewEngine(gpu.EngineConfig{Profile: profile, Rand: rand.New(rand.NewPCG(1, 1))})
	if err != nil {
		return 0, err
	}
	source, err := o.arrivals(1, 1, 0)
	if err != nil {
		return 0, err
	}
	const requests, counted = 2000, 1500 // the last ones have the worker to themselves
	now := time.Unix(0, 0)
	for i := range requests {
		a, err := source.Next()
		if err != nil {
			return 0, err
		}
		if _, err := engine.Submit(now, gpu.Request{PromptTokens: a.PromptTokens(), OutputTokens: a.Output, Owner: i}); err != nil {
			return 0, fmt.Errorf("sending request %d to the virtual worker: %w", i, err)
		}
	}
	begun := now
	for done := 0; done < counted; {
		next, ok := engine.Next()
		if !ok {
			break
		}
		now = next
		for _, s := range engine.Advance(now) {
			if s.Done() {
				done++
			}
		}
	}
	return counted / now.Sub(begun).Seconds(), nil
}

// arrivals are the same for every policy and seed: chats of unlike length, a third of each prompt shared by an eighth of
// the users.
func (o *options) arrivals(seed uint64, rate float64, span time.Duration) (load.Source, error) {
	return load.NewPoisson(load.Poisson{Rate: rate, For: span, Prompt: o.prompt, Output: o.out, Groups: 8, PrefixTokens: 160, Seed: seed})
}
