package spec

import "fmt"

// MaxObjectives bounds them: each request that names one looks through the list.
const MaxObjectives = 64

// Objective is the class that a name stands for; ok is false for a name that is not known.
func (s *Spec) Objective(name string) (c Class, ok bool) {
	for i := range s.Routing.Objectives {
		if o := &s.Routing.Objectives[i]; o.Name == name {
			return o.Class, true
		}
	}
	c, err := ParseClass(name)
	return c, err == nil
}

func (j *judge) objectives() {
	const path = "$.routing.objectives"
	list := j.spec.Routing.Objectives
	if len(list) > MaxObjectives {
		j.bad(path, fmt.Sprintf("there are %d objectives, more than %d", len(list), MaxObjectives), "name only those that requests use")
	}
	for i := range list {
		o := &list[i]
		if why := badWord(o.Name); why != "" {
			j.bad(item(path)(i)+".name", "objective: "+why, wordHint)
		}
		if o.Class >= NumClasses {
			j.bad(item(path)(i)+".class", fmt.Sprintf("unknown class %s", o.Class), "write interactive, standard or batch")
		}
	}
	j.distinct("objective", names(list, func(o *Objective) string { return o.Name }), itemName(path))
}
