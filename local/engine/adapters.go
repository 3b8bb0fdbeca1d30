package engine

import (
	"bytes"
	"slices"
)

// adapters gathers which LoRA adapters have requests. An engine that tells them as labels leaves one stale series
// behind for each combination there ever was; the value is the time of writing, so that the largest is the present.
type adapters struct {
	heard  bool
	newest []combination // of each data-parallel engine
}

type combination struct {
	engine string
	at     float64
	labels [2]string // running, waiting: comma-separated
}

// maxEngines bounds the data-parallel engines of one worker whose adapters are told apart.
const maxEngines = 64

// put takes in one series of vllm:lora_requests_info.
func (a *adapters) put(labels []byte, at float64) {
	a.heard = true
	c := combination{engine: string(label(labels, "engine")), at: at}
	c.labels = [2]string{string(label(labels, "running_lora_adapters")), string(label(labels, "waiting_lora_adapters"))}
	for i := range a.newest {
		if a.newest[i].engine == c.engine {
			if at > a.newest[i].at {
				a.newest[i] = c
			}
			return
		}
	}
	if len(a.newest) < maxEngines {
		a.newest = append(a.newest, c)
	}
}

// names lists the adapters of the present, sorted.
func (a *adapters) names() []string {
	var out []string
	for _, c := range a.newest {
		for _, l := range c.labels {
			for name := range bytes.SplitSeq([]byte(l), []byte(",")) {
				if name = bytes.TrimSpace(name); len(name) > 0 && len(name) <= maxName && len(out) < maxNamed {
					out = append(out, string(name))
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
