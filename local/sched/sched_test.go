package sched

import (
	"math/rand/v2"

	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/health"
)

// testBackend is a worker whose engine is never called.
type testBackend struct{}

func (testBackend) EngineName() string { return "vllm" }

func (testBackend) LoadsModels() bool { return false }

func (testBackend) Sleeps() bool { return false }

func (testBackend) RequestScrape() {}

// newTestScheduler returns a zone without workers.
func newTestScheduler(s *spec.Spec, h health.Config) *Scheduler {
	return New(Config{Name: "a", Region: "r", Zone: "z", Policy: NewSchedulingPolicy(s, "", nil, 0), Rand: rand.New(rand.NewPCG(1, 2)), Health: h})
}
