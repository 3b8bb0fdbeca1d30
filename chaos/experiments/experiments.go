package experiments

import (
	"cmp"
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/chaos/experiment"
)

//go:embed *.yaml
var experimentFiles embed.FS

// LoadAll reads the catalogue, in numerical order.
func LoadAll() ([]*experiment.Experiment, error) {
	entries, err := experimentFiles.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var out []*experiment.Experiment
	for _, f := range entries {
		text, err := experimentFiles.ReadFile(f.Name())
		if err != nil {
			return nil, err
		}
		e, err := experiment.DecodeExperiment(f.Name(), text)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *experiment.Experiment) int { return cmp.Or(len(a.ID)-len(b.ID), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

// FindExperiment reads one experiment of the catalogue by its id in any case. The error lists the ids.
func FindExperiment(id string) (*experiment.Experiment, error) {
	all, err := LoadAll()
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

// ReadText is the file of one experiment, to be copied and changed.
func ReadText(id string) ([]byte, error) {
	e, err := FindExperiment(id)
	if err != nil {
		return nil, err
	}
	return experimentFiles.ReadFile(strings.ToLower(e.ID) + ".yaml")
}
