package engine

import (
	"bytes"
	"slices"
)

// adapterSet collects which LoRA adapters have requests. An engine that reports them as labels leaves a stale series
// for each earlier combination; the value is the time of writing, so the series with the largest value is the current
// one.
type adapterSet struct {
	reported bool
	newest   []adapterSeries // one per data-parallel engine
}

type adapterSeries struct {
	engine    string
	writtenAt float64
	labels    [2]string // running, waiting: comma-separated
}

// maxEngines bounds the data-parallel engines of one worker whose adapters are tracked separately.
const maxEngines = 64

// addSeries adds one series of vllm:lora_requests_info.
func (a *adapterSet) addSeries(labels []byte, at float64) {
	a.reported = true
	c := adapterSeries{engine: string(labelValue(labels, "engine")), writtenAt: at}
	c.labels = [2]string{string(labelValue(labels, "running_lora_adapters")), string(labelValue(labels, "waiting_lora_adapters"))}
	for i := range a.newest {
		if a.newest[i].engine == c.engine {
			if at > a.newest[i].writtenAt {
				a.newest[i] = c
			}
			return
		}
	}
	if len(a.newest) < maxEngines {
		a.newest = append(a.newest, c)
	}
}

// activeNames lists the current adapters, sorted.
func (a *adapterSet) activeNames() []string {
	var out []string
	for _, c := range a.newest {
		for _, l := range c.labels {
			for name := range bytes.SplitSeq([]byte(l), []byte(",")) {
				if name = bytes.TrimSpace(name); len(name) > 0 && len(name) <= maxNameBytes && len(out) < maxNames {
					out = append(out, string(name))
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
