package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

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

// Bounds of a model's replica settings.
const (
	maxReplicas  = 100_000
	maxPathBytes = 1024 // length of a path, in bytes
)

func (j *validator) checkLoading(m *Model, path string) {
	j.checkParent(m, path)
	j.checkInteger(path+".warm_replicas", "warm_replicas", int64(m.WarmReplicas), 0, maxReplicas)
	if m.IdleAfter != 0 {
		j.checkDuration(path+".idle_after", "idle_after", m.IdleAfter, 10*time.Second, 30*24*time.Hour)
	}
	a := &m.Autoscaling
	least := a.MinReplicas()
	j.checkNumber(path+".autoscaling.target", "target", a.Target, 0.05, 1)
	j.checkInteger(path+".autoscaling.min", "min", int64(least), 0, maxReplicas)
	j.checkInteger(path+".autoscaling.max", "max", int64(a.Max), 0, maxReplicas)
	if a.Max > 0 && a.Max < least {
		j.addProblem(path+".autoscaling.max", fmt.Sprintf("max %d is less than min %d", a.Max, least), "write at least as many, or leave max out for no bound")
	}
	j.checkDuration(path+".autoscaling.cold_start", "cold_start", a.ColdStart, time.Millisecond, 2*time.Hour)
	j.checkDuration(path+".autoscaling.scale_down_after", "scale_down_after", a.ScaleDownAfter, 10*time.Second, time.Hour)
}

// checkParent checks the settings of an adapter.
func (j *validator) checkParent(m *Model, path string) {
	switch at := slices.Index(j.models, m.Parent); {
	case m.Parent == "":
		if m.Load.Path != "" {
			j.addProblem(path+".load.path", "a path is for adapters, and the model has no parent", "write parent: and the name of its base model; engines find whole models by their own configuration")
		}
		return
	case m.Parent == m.Name:
		j.addProblem(path+".parent", fmt.Sprintf("%q is its own parent", m.Name), "write the name of the base model, or leave it out")
	case at < 0:
		j.problems = append(j.problems, Problem{
			Path: path + ".parent", DependsOn: "$.models[*].name",
			Reason: fmt.Sprintf("unknown model %q", m.Parent), Hint: strict.SuggestName(m.Parent, j.models, "models"),
		})
	case j.spec.Models[at].Parent != "":
		j.addProblem(path+".parent", fmt.Sprintf("%q is an adapter itself", m.Parent), "write the name of the base model that both stand on")
	}
	if len(m.Load.Path) > maxPathBytes || strings.ContainsFunc(m.Load.Path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		j.addProblem(path+".load.path", "the path is too long or holds control characters", fmt.Sprintf("write at most %d bytes, such as /adapters/sql", maxPathBytes))
	}
}
