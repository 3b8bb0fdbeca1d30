package sim

import (
	"fmt"
	"math"
	"slices"

	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/chaos/load"
	"github.com/spillway-lb/spillway/internal/capacity"
	"github.com/spillway-lb/spillway/internal/spec"
	"github.com/spillway-lb/spillway/local/blockhash"
)

// requestReader derives from a request of the workload what each decider sees of it.
type requestReader struct {
	scenario     *Scenario
	defaultModel string // the model of requests when the scenario names none
	blockBuf     []uint64
	landmarkBuf  []uint64
}

// checkModels checks that the fleet serves the models of the workload.
func (rd *requestReader) checkModels() error {
	served := rd.scenario.Fleet.servedModels()
	rd.defaultModel = served[0] // checkScenario has verified that there are workers
	if len(rd.scenario.Models) == 0 && len(served) > 1 {
		return fmt.Errorf("the fleet serves %d models: name those that the workload numbers (Models)", len(served))
	}
	if len(rd.scenario.Models) > capacity.MaxModels {
		return fmt.Errorf("%d models: a zone serves %d at most", len(rd.scenario.Models), capacity.MaxModels)
	}
	for _, m := range rd.scenario.Models {
		if !slices.Contains(served, m) {
			return fmt.Errorf("no worker serves the model %s: add a group of workers that do, or take it out of the workload", m)
		}
	}
	return nil
}

// bytesPerToken is the length of a token's text: the router's estimate of lengths when the spec sets none.
const bytesPerToken = 4

// estimatePromptTokens is the estimate of a prompt's length before an engine has counted it: log-uniform around its
// length, and the same for every decider and every policy.
func (rd *requestReader) estimatePromptTokens(q *load.Request) int {
	e := rd.scenario.EstimateError
	if e == 0 {
		return q.PromptTokens
	}
	u := float64(splitMix64(q.ID^splitMix64(rd.scenario.Seed^0xe571))>>11) / (1 << 53) // 0 to 1
	return max(1, int(math.Round(float64(q.PromptTokens)*math.Pow(1+e, 2*u-1))))
}

// promptBlocks are a prompt's block hashes as the router computes them, valid until the next call.
func (rd *requestReader) promptBlocks(q *load.Request) []uint64 {
	rd.blockBuf = gpu.HashVariableBlocks(rd.blockBuf[:0], q.Prompt, func(i int) int {
		if i >= blockhash.MaxBlocks {
			return 0
		}
		return blockhash.BlockSize(i) / bytesPerToken
	})
	return rd.blockBuf
}

// promptLandmarks are the prefix hashes of a prompt as sketches contain them, valid until the next call.
func (rd *requestReader) promptLandmarks(q *load.Request) []uint64 {
	rd.landmarkBuf = gpu.HashVariableBlocks(rd.landmarkBuf[:0], q.Prompt, func(i int) int {
		switch {
		case i >= capacity.MaxLandmarks:
			return 0
		case i == 0:
			return capacity.LandmarkEnd(0) / bytesPerToken
		}
		return (capacity.LandmarkEnd(i) - capacity.LandmarkEnd(i-1)) / bytesPerToken
	})
	return rd.landmarkBuf
}

// affinityKey is the session of a request, by which it is kept together.
func (rd *requestReader) affinityKey(q *load.Request) uint64 {
	if rd.scenario.affinityKey != nil {
		return rd.scenario.affinityKey(q)
	}
	return q.Session | 1<<63
}

func (rd *requestReader) requestClass(q *load.Request) spec.Class {
	if rd.scenario.ClassOf != nil && !rd.scenario.HideTenants {
		return rd.scenario.ClassOf(q)
	}
	return spec.Interactive
}

func (rd *requestReader) tenantName(n int32) string {
	if n >= 0 && int(n) < len(rd.scenario.Tenants) && !rd.scenario.HideTenants {
		return rd.scenario.Tenants[n]
	}
	return spec.DefaultTenant
}

func (rd *requestReader) modelName(n int32) string {
	if n >= 0 && int(n) < len(rd.scenario.Models) {
		return rd.scenario.Models[n]
	}
	return rd.defaultModel
}
