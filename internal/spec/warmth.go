package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// LoadFrom is how workers come by a model that they do not have.
type LoadFrom struct {
	// Path is where engines find a LoRA adapter: a folder on the worker, or a name in a hub. Workers that serve the
	// parent load it when it is first asked for. Empty: only workers that list the model have it.
	Path string `yaml:"path"`
}

// Autoscaling is how desired replicas of one model in one zone are reckoned.
type Autoscaling struct {
	// Target is the part of a replica's capacity that is to be used, 0..1. Default 0.7.
	Target float64 `yaml:"target" default:"0.7"`
	// Min is the least number of replicas. With 0 a model that nobody has asked for of late wants none. Default 1.
	Min *int `yaml:"min" default:"1"`
	Max int  `yaml:"max"` // the most replicas; 0 means no bound
	// ColdStart is how long a new replica takes until it serves, from the moment that it is asked for: demand is looked
	// at so far ahead. Default 2m.
	ColdStart Duration `yaml:"cold_start" default:"2m"`
	// ScaleDownAfter is how long fewer replicas must have been enough before fewer are asked for. Default 5m.
	ScaleDownAfter Duration `yaml:"scale_down_after" default:"5m"`
}

// Least is Min, or its default.
func (a *Autoscaling) Least() int {
	if a.Min == nil {
		return 1
	}
	return *a.Min
}

// Bounds of what a model may say about its replicas.
const (
	maxReplicas = 100_000
	maxPath     = 1024 // bytes of a path
)

func (j *judge) warmth(m *Model, path string) {
	j.parent(m, path)
	j.whole(path+".warm_replicas", "warm_replicas", int64(m.WarmReplicas), 0, maxReplicas)
	if m.IdleAfter != 0 {
		j.between(path+".idle_after", "idle_after", m.IdleAfter, 10*time.Second, 30*24*time.Hour)
	}
	a := &m.Autoscaling
	least := a.Least()
	j.number(path+".autoscaling.target", "target", a.Target, 0.05, 1)
	j.whole(path+".autoscaling.min", "min", int64(least), 0, maxReplicas)
	j.whole(path+".autoscaling.max", "max", int64(a.Max), 0, maxReplicas)
	if a.Max > 0 && a.Max < least {
		j.bad(path+".autoscaling.max", fmt.Sprintf("max %d is less than min %d", a.Max, least), "write at least as many, or leave max out for no bound")
	}
	j.between(path+".autoscaling.cold_start", "cold_start", a.ColdStart, time.Millisecond, 2*time.Hour)
	j.between(path+".autoscaling.scale_down_after", "scale_down_after", a.ScaleDownAfter, 10*time.Second, time.Hour)
}

// parent judges what makes a model an adapter.
func (j *judge) parent(m *Model, path string) {
	switch at := slices.Index(j.models, m.Parent); {
	case m.Parent == "":
		if m.Load.Path != "" {
			j.bad(path+".load.path", "a path is for adapters, and the model has no parent", "write parent: and the name of its base model; engines find whole models by their own configuration")
		}
		return
	case m.Parent == m.Name:
		j.bad(path+".parent", fmt.Sprintf("%q is its own parent", m.Name), "write the name of the base model, or leave it out")
	case at < 0:
		j.found = append(j.found, Problem{
			Path: path + ".parent", Needs: "$.models[*].name",
			Reason: fmt.Sprintf("unknown model %q", m.Parent), Hint: strict.Suggest(m.Parent, j.models, "models"),
		})
	case j.spec.Models[at].Parent != "":
		j.bad(path+".parent", fmt.Sprintf("%q is an adapter itself", m.Parent), "write the name of the base model that both stand on")
	}
	if len(m.Load.Path) > maxPath || strings.ContainsFunc(m.Load.Path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		j.bad(path+".load.path", "the path is too long or holds control characters", fmt.Sprintf("write at most %d bytes, such as /adapters/sql", maxPath))
	}
}
