package engine

import (
	"context"
	"encoding/json"
	"fmt"
)

// listedModel is one entry of an OpenAI-style list of models, with the fields that vLLM, SGLang and llama.cpp add.
type listedModel struct {
	ID      string  `json:"id"`
	OwnedBy string  `json:"owned_by"`
	Parent  *string `json:"parent"`
	MaxLen  float64 `json:"max_model_len"`
	Status  struct {
		Value string `json:"value"`
	} `json:"status"`
}

func (c *listedModel) toWorkerModel() WorkerModel {
	m := WorkerModel{ID: c.ID, MaxContext: validContext(c.MaxLen)}
	if c.Parent != nil && len(*c.Parent) <= maxNameBytes {
		m.Parent = *c.Parent
	}
	return m
}

// validContext returns a context length, 0 when it is out of range.
func validContext(v float64) int64 {
	if v >= 1 && v <= maxKV {
		return int64(v)
	}
	return 0
}

func isValidName(id string) bool { return id != "" && len(id) <= maxNameBytes }

// parseModelList parses a list of models, at most maxNames of them. Entries without a usable name are skipped.
func parseModelList(page []byte) ([]listedModel, error) {
	var list struct {
		Data []listedModel `json:"data"`
	}
	if err := json.Unmarshal(page, &list); err != nil {
		return nil, fmt.Errorf("the list of models: %w", err)
	}
	var out []listedModel
	for _, c := range list.Data {
		if isValidName(c.ID) && len(out) < maxNames {
			out = append(out, c)
		}
	}
	return out, nil
}

// parseModels parses an OpenAI-style list of models, with vLLM's max_model_len and parent if present.
func parseModels(page []byte) ([]WorkerModel, error) {
	cards, err := parseModelList(page)
	if err != nil {
		return nil, err
	}
	return toWorkerModels(cards), nil
}

func toWorkerModels(cards []listedModel) []WorkerModel {
	var out []WorkerModel
	for i := range cards {
		out = append(out, cards[i].toWorkerModel())
	}
	return out
}

// fetchModelList gets and parses /v1/models.
func (s *workerServer) fetchModelList(ctx context.Context) (out []listedModel, err error) {
	err = s.client.getPage(ctx, s.urlFor("/v1/models"), maxModelListBytes, func(b []byte) (err error) {
		out, err = parseModelList(b)
		return err
	})
	return out, err
}

// fetchModels gets /v1/models and returns it without changes.
func (s *workerServer) fetchModels(ctx context.Context) ([]WorkerModel, error) {
	cards, err := s.fetchModelList(ctx)
	return toWorkerModels(cards), err
}
