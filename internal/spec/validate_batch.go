package spec

import (
	"fmt"
	"time"
)

// maxBatchInputs bounds the inputs of one call: far more than any engine computes at once.
const maxBatchInputs = 4096

func (j *validator) checkBatch(b *BatchPolicy) {
	const path = "$.routing.batch"
	if b.MaxSize < 1 || b.MaxSize > maxBatchInputs {
		j.addProblem(path+".max_size", fmt.Sprintf("max_size %d is out of range", b.MaxSize), fmt.Sprintf("write a number of inputs from 1 to %d, or enabled: false", maxBatchInputs))
	}
	last := 0
	for i, n := range b.PreferredSizes {
		if n <= last || n > b.MaxSize {
			j.addProblem(fmt.Sprintf("%s.preferred_sizes[%d]", path, i), fmt.Sprintf("preferred size %d is out of order or out of range", n),
				fmt.Sprintf("write sizes from 1 to max_size (%d), each greater than the one before", b.MaxSize))
			break
		}
		last = n
	}
	j.checkDuration(path+".max_delay", "max_delay", b.MaxDelay, 100*time.Microsecond, time.Second)
	if b.MaxBytes < 1<<10 || b.MaxBytes > 64<<20 {
		j.addProblem(path+".max_bytes", fmt.Sprintf("max_bytes %d is out of range", b.MaxBytes), "write bytes, from 1024 to 67108864")
	}
	models := path + ".infer_models"
	j.checkReferences("model", "$.models[*].name", b.InferModels, j.models, itemPath(models))
	j.checkUnique("model", b.InferModels, itemPath(models))
}
