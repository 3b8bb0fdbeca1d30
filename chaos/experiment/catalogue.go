package experiment

import (
	"cmp"
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed catalogue/*.yaml
var catalogueFiles embed.FS

// LoadCatalogue reads the catalogue, in numerical order.
func LoadCatalogue() ([]*Experiment, error) {
	entries, err := catalogueFiles.ReadDir("catalogue")
	if err != nil {
		return nil, err
	}
	var out []*Experiment
	for _, f := range entries {
		text, err := catalogueFiles.ReadFile("catalogue/" + f.Name())
		if err != nil {
			return nil, err
		}
		e, err := DecodeExperiment(f.Name(), text)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b *Experiment) int { return cmp.Or(len(a.ID)-len(b.ID), cmp.Compare(a.ID, b.ID)) })
	return out, nil
}

// FindExperiment reads one experiment of the catalogue by its id in any case. The error lists the ids.
func FindExperiment(id string) (*Experiment, error) {
	all, err := LoadCatalogue()
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
	return nil, fmt.Errorf("there is no experiment %q\nhint: use one of %s, or a file with -f; `spillway simulate list` lists them", id, strings.Join(ids, ", "))
}

// ReadExperimentText is the file of one experiment of the catalogue, to be copied and changed.
func ReadExperimentText(id string) ([]byte, error) {
	e, err := FindExperiment(id)
	if err != nil {
		return nil, err
	}
	return catalogueFiles.ReadFile("catalogue/" + strings.ToLower(e.ID) + ".yaml")
}
