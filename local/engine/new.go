package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Config of an engine.
type Config struct {
	// Base is where the worker listens, "http://host:port".
	Base string
	// Metrics is the address of its metrics page where that is not the engine's usual one; empty for the usual.
	Metrics string
	// Client asks it.
	Client *Client
}

// NameAuto is the dialect that finds out which of the others a worker speaks. It is the default.
const NameAuto = "auto"

// Names of the dialects, NameAuto first.
func Names() []string {
	return []string{NameAuto, "vllm", "sglang", "trtllm", "triton", "tgi", "llamacpp", "ollama", "openai"}
}

// Known says whether there is a dialect of that name; the empty name means NameAuto.
func Known(name string) bool { return name == "" || slices.Contains(Names(), name) }

// New returns the named dialect for one worker.
func New(name string, cfg Config) (Engine, error) {
	if _, err := parseBase(cfg.Base); err != nil {
		return nil, err
	}
	if cfg.Metrics != "" {
		if _, err := parseBase(cfg.Metrics); err != nil {
			return nil, fmt.Errorf("metrics page: %w", err)
		}
	}
	if cfg.Client == nil {
		return nil, errors.New("reading a worker needs an HTTP client")
	}
	s := server{base: strings.TrimRight(cfg.Base, "/"), metrics: cfg.Metrics, client: cfg.Client}
	if name == "" || name == NameAuto {
		return newAuto(s), nil
	}
	if e := dialect(name, s); e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("unknown engine %q: write one of %s", name, strings.Join(Names(), ", "))
}

func dialect(name string, s server) Engine {
	switch name {
	case "vllm":
		return &vllm{s}
	case "sglang":
		return &sglang{s}
	case "trtllm":
		return &trtllm{s}
	case "triton":
		return newTriton(s)
	case "tgi":
		return &tgi{server: s}
	case "llamacpp":
		return &llamacpp{server: s}
	case "ollama":
		return &ollama{s}
	case "openai":
		return &openai{s}
	}
	return nil
}
