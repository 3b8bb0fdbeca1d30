package engine

import (
	"context"
	"encoding/json"
	"fmt"
)

// card is one entry of an OpenAI-style list of models, with what vLLM, SGLang and llama.cpp add.
type card struct {
	ID      string  `json:"id"`
	OwnedBy string  `json:"owned_by"`
	Parent  *string `json:"parent"`
	MaxLen  float64 `json:"max_model_len"`
	Status  struct {
		Value string `json:"value"`
	} `json:"status"`
}

func (c *card) model() Model {
	m := Model{ID: c.ID, MaxContext: context64(c.MaxLen)}
	if c.Parent != nil && len(*c.Parent) <= maxName {
		m.Parent = *c.Parent
	}
	return m
}

// context64 is a context length, 0 when it cannot be one.
func context64(v float64) int64 {
	if v >= 1 && v <= maxKV {
		return int64(v)
	}
	return 0
}

func named(id string) bool { return id != "" && len(id) <= maxName }

// parseCards reads a list of models, at most maxNamed of them. Entries without a usable name are passed over.
func parseCards(page []byte) ([]card, error) {
	var list struct {
		Data []card `json:"data"`
	}
	if err := json.Unmarshal(page, &list); err != nil {
		return nil, fmt.Errorf("the list of models: %w", err)
	}
	var out []card
	for _, c := range list.Data {
		if named(c.ID) && len(out) < maxNamed {
			out = append(out, c)
		}
	}
	return out, nil
}

// parseModels reads an OpenAI-style list of models, with vLLM's max_model_len and parent where they are given.
func parseModels(page []byte) ([]Model, error) {
	cards, err := parseCards(page)
	if err != nil {
		return nil, err
	}
	return modelsOf(cards), nil
}

func modelsOf(cards []card) []Model {
	var out []Model
	for i := range cards {
		out = append(out, cards[i].model())
	}
	return out
}

// cards asks /v1/models.
func (s *server) cards(ctx context.Context) (out []card, err error) {
	err = s.client.page(ctx, s.at("/v1/models"), maxModels, func(b []byte) (err error) {
		out, err = parseCards(b)
		return err
	})
	return out, err
}

// list asks /v1/models and takes it as it is.
func (s *server) list(ctx context.Context) ([]Model, error) {
	cards, err := s.cards(ctx)
	return modelsOf(cards), err
}
