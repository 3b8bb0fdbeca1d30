package experiments

import (
	"cmp"
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/chaos/lab"
)

//go:embed *.yaml
var files embed.FS

// All reads the catalogue, in the order of its numbers.
func All() ([]*lab.Experiment, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var out []*lab.Experiment
	for _, f := range entries {
		text, err := files.ReadFile(f.Name())
		if err != nil {
			return nil, err
		}
		e, err := lab.Decode(f.Name(), text)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *lab.Experiment) int { return cmp.Or(len(a.ID)-len(b.ID), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

// Find reads one of the catalogue, by its id in any case. The error lists what there is.
func Find(id string) (*lab.Experiment, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, e := range all {
		if strings.EqualFold(e.ID, id) {
			return e, nil
		}
		ids = append(ids, e.ID)
	}
	return nil, fmt.Errorf("there is no experiment %q\nhint: use one of %s, or a file with -f; `spillway simulate list` says what each asks", id, strings.Join(ids, ", "))
}

// Text is the file of one of the catalogue, as it can be copied and changed.
func Text(id string) ([]byte, error) {
	e, err := Find(id)
	if err != nil {
		return nil, err
	}
	return files.ReadFile(strings.ToLower(e.ID) + ".yaml")
}
