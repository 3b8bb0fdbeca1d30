package spec

import (
	"fmt"
	"slices"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

func (j *validator) checkModels() {
	list := j.spec.Models
	if len(list) == 0 && !j.standalone {
		j.addProblem("$.models", "there are no models", "write at least one model's name, as the workers serve it")
	}
	for i := range list {
		j.checkModel(&list[i], itemPath("$.models")(i))
	}
	j.checkUnique("model", j.models, itemNamePath("$.models"))
}

func (j *validator) checkModel(m *Model, path string) {
	if why := nameProblem(m.Name); why != "" {
		j.addProblem(path+".name", "model: "+why, nameHint)
	}
	if m.MaxContext < 0 {
		j.addProblem(path+".max_context", fmt.Sprintf("max_context %d is negative", m.MaxContext), "write tokens, or leave it out to take what the workers say")
	}
	if m.MaxOutput < 1 {
		j.addProblem(path+".max_output", fmt.Sprintf("max_output %d is not positive", m.MaxOutput), "write tokens, such as 1024")
	}
	if m.MaxContext > 0 && m.MaxOutput > m.MaxContext {
		j.addProblem(path+".max_output", fmt.Sprintf("max_output %d is more than max_context %d", m.MaxOutput, m.MaxContext), "the context holds prompt and output: write less")
	}
	if m.OutputLimit < 0 || m.MaxContext > 0 && m.OutputLimit > m.MaxContext {
		j.addProblem(path+".output_limit", fmt.Sprintf("output_limit %d is out of range", m.OutputLimit), "write tokens, at most max_context, or leave it out for no limit")
	}
	if !(m.BytesPerToken > 0 && m.BytesPerToken <= 64) {
		j.addProblem(path+".bytes_per_token", fmt.Sprintf("bytes_per_token %v is out of range", m.BytesPerToken), "write a number above 0 and at most 64, such as 4")
	}
	j.checkPrice(&m.Price, path+".price")
	for c := range Class(NumClasses) {
		if m.TTFT.ForClass(c) <= 0 {
			j.addProblem(path+".ttft."+c.String(), fmt.Sprintf("the %s target %s is not positive", c, m.TTFT.ForClass(c)), "write a duration such as 2s")
		}
	}
	j.checkLoading(m, path)
}

func (j *validator) checkAliases() {
	list := j.spec.Aliases
	for i := range list {
		a, path := &list[i], itemPath("$.aliases")(i)
		if why := nameProblem(a.Name); why != "" {
			j.addProblem(path+".name", "alias: "+why, nameHint)
		} else if slices.Contains(j.models, a.Name) {
			j.addProblem(path+".name", fmt.Sprintf("alias %q hides the model of that name", a.Name), "rename the alias: a model always answers to its own name")
		}
		j.checkTargets(a, path+".targets")
		if !slices.Contains(stickyModes(), a.Sticky) {
			j.addProblem(path+".sticky", fmt.Sprintf("unknown sticky %q", a.Sticky), strict.SuggestName(a.Sticky, stickyModes(), "words"))
		}
	}
	j.checkUnique("alias", j.aliases, itemNamePath("$.aliases"))
}

func formatSum(sum float64) string {
	if isFinite(sum) {
		return "zero"
	}
	return "infinity"
}
