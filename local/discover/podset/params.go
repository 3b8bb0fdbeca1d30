package podset

const (
	// MaxWorkers bounds the workers of one entry, in workers: a local instance takes 4096 from all sources. Further pods
	// are left out, the last ones by name.
	MaxWorkers = 4096
	// maxWorkerLabels bounds the labels that one worker takes over from its pod. Kubernetes bounds the labels of a pod only
	// by the size of the object.
	maxWorkerLabels = 64
	// maxModels bounds the models that a label or an annotation lists, in models.
	maxModels = 256
	// maxNameBytes bounds a worker's name, as in a workers file.
	maxNameBytes = 63
)
