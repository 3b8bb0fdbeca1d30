package config

import (
	"fmt"
	"slices"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// EngineNames returns the values of a worker's engine key; the local tier has a dialect for each.
func EngineNames() []string {
	return []string{"auto", "vllm", "sglang", "trtllm", "triton", "tgi", "llamacpp", "ollama", "openai"}
}

// checkDialect checks the keys of a worker's entry about its engine and metrics.
func (k *configChecker) checkDialect(w *WorkerEntry, path string) {
	if w.Engine != "" && !slices.Contains(EngineNames(), w.Engine) {
		k.addProblem("$."+path+".engine", fmt.Sprintf("unknown engine %q", w.Engine), strict.SuggestName(w.Engine, EngineNames(), "engines"))
	}
	if w.MaxModels < 0 || w.MaxModels > 1000 {
		k.addProblem("$."+path+".max_models", fmt.Sprintf("max_models %d is out of range", w.MaxModels), "write how many models fit at one time, 1 to 1000, or leave it out")
	}
	if len(w.GPUs) > 0 && w.GPUMetrics == "" {
		k.addProblem("$."+path+".gpus", "gpus selects GPUs of an exporter, but gpu_metrics is not set", "write gpu_metrics: http://host:9400/metrics, or leave gpus out")
	}
}
