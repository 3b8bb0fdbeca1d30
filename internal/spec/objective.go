package spec

import "fmt"

// MaxObjectives bounds the objectives: a request that names one searches the list.
const MaxObjectives = 64

// ObjectiveClass returns the class of an objective; ok is false if the name is unknown.
func (s *Spec) ObjectiveClass(name string) (c Class, ok bool) {
	for i := range s.Routing.Objectives {
		if o := &s.Routing.Objectives[i]; o.Name == name {
			return o.Class, true
		}
	}
	c, err := ParseClass(name)
	return c, err == nil
}

func (j *validator) checkObjectives() {
	const path = "$.routing.objectives"
	list := j.spec.Routing.Objectives
	if len(list) > MaxObjectives {
		j.addProblem(path, fmt.Sprintf("there are %d objectives, more than %d", len(list), MaxObjectives), "name only those that requests use")
	}
	for i := range list {
		o := &list[i]
		if why := nameProblem(o.Name); why != "" {
			j.addProblem(itemPath(path)(i)+".name", "objective: "+why, nameHint)
		}
		if o.Class >= NumClasses {
			j.addProblem(itemPath(path)(i)+".class", fmt.Sprintf("unknown class %s", o.Class), "write interactive, standard or batch")
		}
	}
	j.checkUnique("objective", namesOf(list, func(o *ClassObjective) string { return o.Name }), itemNamePath(path))
}
