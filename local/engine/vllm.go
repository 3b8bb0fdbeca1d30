package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// VLLM reads vLLM and the engines that imitate its pages.
type VLLM struct {
	base   string
	client *http.Client
}

// NewVLLM returns a reader for the worker at base, "http://host:port". The client must not follow redirects.
func NewVLLM(base string, client *http.Client) (*VLLM, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("worker URL %q is not of the form http://host:port", base)
	}
	if client == nil {
		return nil, errors.New("reading a worker needs an HTTP client")
	}
	return &VLLM{base: strings.TrimRight(base, "/"), client: client}, nil
}

// Health asks /health.
func (v *VLLM) Health(ctx context.Context) error {
	_, err := v.get(ctx, "/health", 64<<10)
	return err
}

// Metrics asks /metrics.
func (v *VLLM) Metrics(ctx context.Context, last Reading) (Reading, error) {
	page, err := v.get(ctx, "/metrics", MaxPage)
	if err != nil {
		return last, err
	}
	next := ParseVLLM(page, last)
	next.At = time.Now()
	return next, nil
}

// Models asks /v1/models.
func (v *VLLM) Models(ctx context.Context) ([]Model, error) {
	page, err := v.get(ctx, "/v1/models", maxModels)
	if err != nil {
		return nil, err
	}
	return ParseModels(page)
}

// ParseModels reads an OpenAI-style list of models, with vLLM's max_model_len and parent where they are given.
func ParseModels(page []byte) ([]Model, error) {
	var list struct {
		Data []struct {
			ID     string  `json:"id"`
			Parent *string `json:"parent"`
			MaxLen float64 `json:"max_model_len"`
		} `json:"data"`
	}
	if err := json.Unmarshal(page, &list); err != nil {
		return nil, fmt.Errorf("reading the list of models: %w", err)
	}
	var out []Model
	for _, d := range list.Data {
		if d.ID == "" || len(d.ID) > 253 || len(out) == maxNamed {
			continue
		}
		m := Model{ID: d.ID}
		if d.MaxLen >= 1 && d.MaxLen <= 1<<40 {
			m.MaxContext = int64(d.MaxLen)
		}
		if d.Parent != nil {
			m.Parent = *d.Parent
		}
		out = append(out, m)
	}
	return out, nil
}

func (v *VLLM) get(ctx context.Context, path string, limit int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.base+path, nil)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", path, err)
	}
	resp, err := v.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if int64(len(body)) > limit {
		return nil, fmt.Errorf("reading %s: %w of %d bytes", path, ErrTooLarge, limit)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking %s: status %d", path, resp.StatusCode)
	}
	return body, nil
}
