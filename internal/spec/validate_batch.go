package spec

import (
	"fmt"
	"time"
)

// maxBatch bounds the inputs of one call: far beyond what any engine computes at a time.
const maxBatch = 4096

func (j *judge) batch(b *Batching) {
	const path = "$.routing.batch"
	if b.MaxSize < 1 || b.MaxSize > maxBatch {
		j.bad(path+".max_size", fmt.Sprintf("max_size %d is out of range", b.MaxSize), fmt.Sprintf("write a number of inputs from 1 to %d, or enabled: false", maxBatch))
	}
	last := 0
	for i, n := range b.PreferredSizes {
		if n <= last || n > b.MaxSize {
			j.bad(fmt.Sprintf("%s.preferred_sizes[%d]", path, i), fmt.Sprintf("preferred size %d is out of order or out of range", n),
				fmt.Sprintf("write sizes from 1 to max_size (%d), each greater than the one before", b.MaxSize))
			break
		}
		last = n
	}
	j.between(path+".max_delay", "max_delay", b.MaxDelay, 100*time.Microsecond, time.Second)
	if b.MaxBytes < 1<<10 || b.MaxBytes > 64<<20 {
		j.bad(path+".max_bytes", fmt.Sprintf("max_bytes %d is out of range", b.MaxBytes), "write bytes, from 1024 to 67108864")
	}
	models := path + ".infer_models"
	j.known("model", "$.models[*].name", b.InferModels, j.models, item(models))
	j.distinct("model", b.InferModels, item(models))
}
