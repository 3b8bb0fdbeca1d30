package config

import (
	"fmt"
	"slices"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Engines are what a worker's engine key may say; the local tier has a dialect of each name.
func Engines() []string {
	return []string{"auto", "vllm", "sglang", "trtllm", "triton", "tgi", "llamacpp", "ollama", "openai"}
}

// dialect judges what a worker's entry says of how it is read.
func (k *checker) dialect(w *WorkerEntry, path string) {
	if w.Engine != "" && !slices.Contains(Engines(), w.Engine) {
		k.bad("$."+path+".engine", fmt.Sprintf("unknown engine %q", w.Engine), strict.Suggest(w.Engine, Engines(), "engines"))
	}
	if w.MaxModels < 0 || w.MaxModels > 1000 {
		k.bad("$."+path+".max_models", fmt.Sprintf("max_models %d is out of range", w.MaxModels), "write how many models fit at one time, 1 to 1000, or leave it out")
	}
	if len(w.GPUs) > 0 && w.GPUMetrics == "" {
		k.bad("$."+path+".gpus", "gpus choose among an exporter's, and gpu_metrics names none", "write gpu_metrics: http://host:9400/metrics, or leave gpus out")
	}
}
