package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/local/engine/report"
)

// Config of an Engine.
type Config struct {
	// BaseURL is where the worker listens, "http://host:port".
	BaseURL string
	// MetricsURL is the address of its metrics page; empty for the engine's default.
	MetricsURL string
	// Client makes the calls.
	Client *Client
}

// NameAuto is the dialect that detects the worker's engine. It is the default.
const NameAuto = report.NameAuto

// DialectNames lists the dialects, NameAuto first.
func DialectNames() []string {
	return []string{NameAuto, "vllm", "sglang", "trtllm", "triton", "tgi", "llamacpp", "ollama", "openai"}
}

// IsKnownDialect reports whether there is a dialect of that name; the empty name means NameAuto.
func IsKnownDialect(name string) bool { return name == "" || slices.Contains(DialectNames(), name) }

// New returns an Engine of the named dialect for one worker.
func New(name string, cfg Config) (Engine, error) {
	if _, err := parseBaseURL(cfg.BaseURL); err != nil {
		return nil, err
	}
	if cfg.MetricsURL != "" {
		if _, err := parseBaseURL(cfg.MetricsURL); err != nil {
			return nil, fmt.Errorf("metrics page: %w", err)
		}
	}
	if cfg.Client == nil {
		return nil, errors.New("reading a worker needs an HTTP client")
	}
	s := workerServer{baseURL: strings.TrimRight(cfg.BaseURL, "/"), metricsURL: cfg.MetricsURL, client: cfg.Client}
	if name == "" || name == NameAuto {
		return newAutoEngine(s), nil
	}
	if e := newDialect(name, s); e != nil {
		return e, nil
	}
	return nil, fmt.Errorf("unknown engine %q: write one of %s", name, strings.Join(DialectNames(), ", "))
}

func newDialect(name string, s workerServer) Engine {
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
		return &tgi{workerServer: s}
	case "llamacpp":
		return &llamacpp{workerServer: s}
	case "ollama":
		return &ollama{s}
	case "openai":
		return &openaiServer{s}
	}
	return nil
}
