package openai

import (
	"encoding/json"
	"slices"
	"strings"
)

// ModelCard is a model in the list for clients.
type ModelCard struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"` // Unix seconds
	OwnedBy string `json:"owned_by"`
}

// IsModelsPath reports whether a GET of the path asks for the list of models, or for one model; one is empty
// for the list.
func IsModelsPath(path string) (one string, ok bool) {
	if path == PathModels {
		return "", true
	}
	one, ok = strings.CutPrefix(path, PathModels+"/")
	return one, ok && one != ""
}

// EncodeModels returns the response: the list of names, or the card of one of them.
func EncodeModels(names []string, one string, created int64) ([]byte, *Error) {
	card := func(name string) ModelCard {
		return ModelCard{ID: name, Object: "model", Created: created, OwnedBy: "spillway"}
	}
	var out any
	if one != "" {
		if !slices.Contains(names, one) {
			return nil, ModelNotFound(one, names)
		}
		out = card(one)
	} else {
		list := struct {
			Object string      `json:"object"`
			Data   []ModelCard `json:"data"`
		}{Object: "list", Data: make([]ModelCard, 0, len(names))}
		for _, name := range names {
			list.Data = append(list.Data, card(name))
		}
		out = list
	}
	b, _ := json.Marshal(out) // strings and numbers always marshal
	return append(b, '\n'), nil
}
