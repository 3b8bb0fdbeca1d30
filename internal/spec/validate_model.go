package spec

import (
	"fmt"
	"slices"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

func (j *judge) modelList() {
	list := j.spec.Models
	if len(list) == 0 {
		j.bad("$.models", "there are no models", "write at least one model's name, as the workers serve it")
	}
	for i := range list {
		j.model(&list[i], item("$.models")(i))
	}
	j.distinct("model", j.models, itemName("$.models"))
}

func (j *judge) model(m *Model, path string) {
	if why := badWord(m.Name); why != "" {
		j.bad(path+".name", "model: "+why, wordHint)
	}
	if m.MaxContext < 0 {
		j.bad(path+".max_context", fmt.Sprintf("max_context %d is negative", m.MaxContext), "write tokens, or leave it out to take what the workers say")
	}
	if m.MaxOutput < 1 {
		j.bad(path+".max_output", fmt.Sprintf("max_output %d is not positive", m.MaxOutput), "write tokens, such as 1024")
	}
	if m.MaxContext > 0 && m.MaxOutput > m.MaxContext {
		j.bad(path+".max_output", fmt.Sprintf("max_output %d is more than max_context %d", m.MaxOutput, m.MaxContext), "the context holds prompt and output: write less")
	}
	if !(m.BytesPerToken > 0 && m.BytesPerToken <= 64) {
		j.bad(path+".bytes_per_token", fmt.Sprintf("bytes_per_token %v is out of range", m.BytesPerToken), "write a number above 0 and at most 64, such as 4")
	}
	for c := range Class(NumClasses) {
		if m.TTFT.Of(c) <= 0 {
			j.bad(path+".ttft."+c.String(), fmt.Sprintf("the %s target %s is not positive", c, m.TTFT.Of(c)), "write a duration such as 2s")
		}
	}
	j.warmth(m, path)
}

func (j *judge) aliasList() {
	list := j.spec.Aliases
	for i := range list {
		a, path := &list[i], item("$.aliases")(i)
		if why := badWord(a.Name); why != "" {
			j.bad(path+".name", "alias: "+why, wordHint)
		} else if slices.Contains(j.models, a.Name) {
			j.bad(path+".name", fmt.Sprintf("alias %q hides the model of that name", a.Name), "rename the alias: a model always answers to its own name")
		}
		j.targets(a, path+".targets")
	}
	j.distinct("alias", j.aliases, itemName("$.aliases"))
}

func (j *judge) targets(a *Alias, path string) {
	if len(a.Targets) == 0 {
		j.bad(path, fmt.Sprintf("alias %q has no targets", a.Name), "write targets: [{model: "+firstOf(j.models)+", weight: 1}]")
		return
	}
	sum := 0.0
	for i, t := range a.Targets {
		here := item(path)(i)
		if slices.Contains(j.aliases, t.Model) && !slices.Contains(j.models, t.Model) {
			j.bad(here+".model", fmt.Sprintf("target %q is an alias", t.Model), "an alias resolves to models only: write its models here")
		} else if !slices.Contains(j.models, t.Model) {
			j.found = append(j.found, Problem{
				Path: here + ".model", Needs: "$.models[*].name",
				Reason: fmt.Sprintf("unknown model %q", t.Model), Hint: strict.Suggest(t.Model, j.models, "models"),
			})
		}
		if t.Weight < 0 || !finite(t.Weight) {
			j.bad(here+".weight", fmt.Sprintf("weight %v is negative", t.Weight), "write 0 to send nothing there, or a number above 0")
		}
		sum += max(t.Weight, 0)
	}
	if !(sum > 0) || !finite(sum) {
		j.bad(path, fmt.Sprintf("the weights of alias %q sum to %s", a.Name, sumWord(sum)), "give at least one target a weight above 0, such as weight: 1")
	}
	j.distinct("model", names(a.Targets, func(t *Target) string { return t.Model }), func(i int) string { return item(path)(i) + ".model" })
}

func sumWord(sum float64) string {
	if finite(sum) {
		return "zero"
	}
	return "infinity"
}
