package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// modelValidator checks models: limits, prices, loading, adapters and fallbacks.
type modelValidator struct{ *validation }

func (v *modelValidator) checkPrice(p *Price, path string) {
	v.checkNumber(path+".prompt", "the price", p.Prompt, 0, 1e6)
	v.checkNumber(path+".cached", "the price", p.Cached, 0, 1e6)
	v.checkNumber(path+".completion", "the price", p.Completion, 0, 1e6)
}

func (v *modelValidator) checkModels() {
	list := v.spec.Models
	if len(list) == 0 && !v.standalone {
		v.addProblem("$.models", "there are no models", "write at least one model's name, as the workers serve it")
	}
	for i := range list {
		v.checkModel(&list[i], itemPath("$.models")(i))
	}
	v.checkUnique("model", v.models, itemNamePath("$.models"))
}

func (v *modelValidator) checkModel(m *Model, path string) {
	if why := nameProblem(m.Name); why != "" {
		v.addProblem(path+".name", "model: "+why, nameHint)
	}
	if m.MaxContext < 0 {
		v.addProblem(path+".max_context", fmt.Sprintf("max_context %d is negative", m.MaxContext), "write tokens, or leave it out to use the value that the workers report")
	}
	if m.MaxOutput < 1 {
		v.addProblem(path+".max_output", fmt.Sprintf("max_output %d is not positive", m.MaxOutput), "write tokens, such as 1024")
	}
	if m.MaxContext > 0 && m.MaxOutput > m.MaxContext {
		v.addProblem(path+".max_output", fmt.Sprintf("max_output %d is more than max_context %d", m.MaxOutput, m.MaxContext), "the context holds prompt and output: write less")
	}
	if m.OutputLimit < 0 || m.MaxContext > 0 && m.OutputLimit > m.MaxContext {
		v.addProblem(path+".output_limit", fmt.Sprintf("output_limit %d is out of range", m.OutputLimit), "write tokens, at most max_context, or leave it out for no limit")
	}
	if !(m.BytesPerToken > 0 && m.BytesPerToken <= 64) {
		v.addProblem(path+".bytes_per_token", fmt.Sprintf("bytes_per_token %v is out of range", m.BytesPerToken), "write a number above 0 and at most 64, such as 4")
	}
	v.checkPrice(&m.Price, path+".price")
	for c := range Class(NumClasses) {
		if m.TTFT.ForClass(c) <= 0 {
			v.addProblem(path+".ttft."+c.String(), fmt.Sprintf("the %s target %s is not positive", c, m.TTFT.ForClass(c)), "write a duration such as 2s")
		}
	}
	v.checkLoading(m, path)
}

// checkFallbacks checks every model's fallback, and that chains have no cycle.
func (v *modelValidator) checkFallbacks() {
	next := map[string]string{}
	for i := range v.spec.Models {
		m := &v.spec.Models[i]
		next[m.Name] = m.Fallback
		path := itemPath("$.models")(i) + ".fallback"
		switch {
		case m.Fallback == "":
		case slices.Contains(v.aliases, m.Fallback) && !slices.Contains(v.models, m.Fallback):
			v.addProblem(path, fmt.Sprintf("the fallback %q is an alias", m.Fallback), "a fallback is one model: write its name")
			next[m.Name] = ""
		default:
			v.checkReferences("model", "$.models[*].name", []string{m.Fallback}, v.models, func(int) string { return path })
		}
	}
	reported := map[string]bool{}
	for i := range v.spec.Models {
		v.checkFallbackCycle(v.spec.Models[i].Name, itemPath("$.models")(i)+".fallback", next, reported)
	}
}

// checkFallbackCycle reports a cyclic chain of fallbacks, once per cycle.
func (v *modelValidator) checkFallbackCycle(first, path string, next map[string]string, reported map[string]bool) {
	way := []string{first}
	for at := next[first]; at != "" && len(way) <= len(next); at = next[at] {
		way = append(way, at)
		if at != first {
			continue
		}
		if !reported[first] {
			v.addProblem(path, "the fallbacks form a cycle: "+strings.Join(way, " -> "), "remove the fallback of one of these models")
		}
		for _, name := range way {
			reported[name] = true
		}
		return
	}
}

// Bounds of a model's replica settings.
const (
	maxReplicas  = 100_000
	maxPathBytes = 1024 // length of a path, in bytes
)

func (v *modelValidator) checkLoading(m *Model, path string) {
	v.checkParent(m, path)
	v.checkInteger(path+".warm_replicas", "warm_replicas", int64(m.WarmReplicas), 0, maxReplicas)
	if m.IdleAfter != 0 {
		v.checkDuration(path+".idle_after", "idle_after", m.IdleAfter, 10*time.Second, 30*24*time.Hour)
	}
	a := &m.Autoscaling
	least := a.MinReplicas()
	v.checkNumber(path+".autoscaling.target", "target", a.Target, 0.05, 1)
	v.checkInteger(path+".autoscaling.min", "min", int64(least), 0, maxReplicas)
	v.checkInteger(path+".autoscaling.max", "max", int64(a.Max), 0, maxReplicas)
	if a.Max > 0 && a.Max < least {
		v.addProblem(path+".autoscaling.max", fmt.Sprintf("max %d is less than min %d", a.Max, least), "write at least as many, or leave max out for no bound")
	}
	v.checkDuration(path+".autoscaling.cold_start", "cold_start", a.ColdStart, time.Millisecond, 2*time.Hour)
	v.checkDuration(path+".autoscaling.scale_down_after", "scale_down_after", a.ScaleDownAfter, 10*time.Second, time.Hour)
}

// checkParent checks the settings of an adapter.
func (v *modelValidator) checkParent(m *Model, path string) {
	switch at := slices.Index(v.models, m.Parent); {
	case m.Parent == "":
		if m.Load.Path != "" {
			v.addProblem(path+".load.path", "a path is for adapters, and the model has no parent", "write parent: and the name of its base model; engines find whole models by their own configuration")
		}
		return
	case m.Parent == m.Name:
		v.addProblem(path+".parent", fmt.Sprintf("%q is its own parent", m.Name), "write the name of the base model, or leave it out")
	case at < 0:
		v.reportProblem(Problem{
			Path: path + ".parent", DependsOn: "$.models[*].name",
			Reason: fmt.Sprintf("unknown model %q", m.Parent), Hint: strict.SuggestName(m.Parent, v.models, "models"),
		})
	case v.spec.Models[at].Parent != "":
		v.addProblem(path+".parent", fmt.Sprintf("%q is an adapter itself", m.Parent), "write the name of the base model of both")
	}
	if len(m.Load.Path) > maxPathBytes || strings.ContainsFunc(m.Load.Path, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		v.addProblem(path+".load.path", "the path is too long or holds control characters", fmt.Sprintf("write at most %d bytes, such as /adapters/sql", maxPathBytes))
	}
}
