package spec

// LoadSource describes how workers obtain a model that they do not have.
type LoadSource struct {
	// Path is where engines find a LoRA adapter: a folder on the worker, or a name in a hub. Workers that serve
	// the parent load it at the first request. Empty: only workers that list the model have it.
	Path string `yaml:"path"`
}

// Autoscaling holds the parameters of the desired number of replicas of one model in one zone.
type Autoscaling struct {
	// Target is the intended utilization of a replica, 0..1. Default 0.7.
	Target float64 `yaml:"target" default:"0.7"`
	// Min is the minimum number of replicas. With 0 a model without recent requests gets none. Default 1.
	Min *int `yaml:"min" default:"1"`
	Max int  `yaml:"max"` // the maximum number of replicas; 0 means no bound
	// ColdStart is the time from the request for a new replica until it serves: demand is forecast this far
	// ahead. Default 2m.
	ColdStart Duration `yaml:"cold_start" default:"2m"`
	// ScaleDownAfter is how long fewer replicas must have been sufficient before the recommendation falls.
	// Default 5m.
	ScaleDownAfter Duration `yaml:"scale_down_after" default:"5m"`
}

// MinReplicas returns Min, or its default.
func (a *Autoscaling) MinReplicas() int {
	if a.Min == nil {
		return 1
	}
	return *a.Min
}
