package openai

import (
	"encoding/json"
	"slices"
	"strings"
)

// Card is a model as clients are told of it.
type Card struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"` // Unix seconds
	OwnedBy string `json:"owned_by"`
}

// ListsModels says that a GET of the path asks for the models that are there, or for one of them; one is empty for all.
func ListsModels(path string) (one string, ok bool) {
	if path == PathModels {
		return "", true
	}
	one, ok = strings.CutPrefix(path, PathModels+"/")
	return one, ok && one != ""
}

// EncodeModels is the answer to that: the list of names, or the card of one of them.
func EncodeModels(names []string, one string, created int64) ([]byte, *Error) {
	card := func(name string) Card { return Card{ID: name, Object: "model", Created: created, OwnedBy: "spillway"} }
	var out any
	if one != "" {
		if !slices.Contains(names, one) {
			return nil, ModelNotFound(one, names)
		}
		out = card(one)
	} else {
		list := struct {
			Object string `json:"object"`
			Data   []Card `json:"data"`
		}{Object: "list", Data: make([]Card, 0, len(names))}
		for _, name := range names {
			list.Data = append(list.Data, card(name))
		}
		out = list
	}
	b, _ := json.Marshal(out) // strings and numbers always can
	return append(b, '\n'), nil
}
