package spec

import (
	"fmt"
	"slices"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

func (j *judge) modelList() {
	list := j.spec.Models
	if len(list) == 0 && !j.alone {
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
	if m.OutputLimit < 0 || m.MaxContext > 0 && m.OutputLimit > m.MaxContext {
		j.bad(path+".output_limit", fmt.Sprintf("output_limit %d is out of range", m.OutputLimit), "write tokens, at most max_context, or leave it out for no limit")
	}
	if !(m.BytesPerToken > 0 && m.BytesPerToken <= 64) {
		j.bad(path+".bytes_per_token", fmt.Sprintf("bytes_per_token %v is out of range", m.BytesPerToken), "write a number above 0 and at most 64, such as 4")
	}
	j.price(&m.Price, path+".price")
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
		if !slices.Contains(stickies(), a.Sticky) {
			j.bad(path+".sticky", fmt.Sprintf("unknown sticky %q", a.Sticky), strict.Suggest(a.Sticky, stickies(), "words"))
		}
	}
	j.distinct("alias", j.aliases, itemName("$.aliases"))
}

func sumWord(sum float64) string {
	if finite(sum) {
		return "zero"
	}
	return "infinity"
}
