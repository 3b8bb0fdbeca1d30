package discover

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/spillway-lb/spillway/internal/config/strict"
)

// Registration is the body of PUT /v1/workers/NAME.
type Registration struct {
	// URL is its HTTP server: scheme, host and port.
	URL string `json:"url"`
	// GPU is the type and number of its GPUs, such as H100 or H100x4.
	GPU string `json:"gpu,omitempty"`
	// Models that it serves; if empty, the worker is queried.
	Models []string `json:"models,omitempty"`
	// Weight scales its share; 0 means 1.
	Weight float64 `json:"weight,omitempty"`
	// Engine is its dialect; if empty, it is detected.
	Engine string `json:"engine,omitempty"`
	// Metrics and GPUMetrics are pages at the host of URL, by plain HTTP.
	Metrics    string `json:"metrics,omitempty"`
	GPUMetrics string `json:"gpu_metrics,omitempty"`
	// GPUs selects its own among those of the exporter; empty means all.
	GPUs []string `json:"gpus,omitempty"`
	// KVEvents and KVReplay are where it publishes its cache events and answers replay requests, tcp://host:port at
	// the host of URL, one for each data-parallel rank.
	KVEvents []string `json:"kv_events,omitempty"`
	KVReplay []string `json:"kv_replay,omitempty"`
	// Wake permits waking it when a request needs a model that is asleep.
	Wake bool `json:"wake,omitempty"`
	// MaxModels bounds the models that it may have loaded at one time; 0 means no bound.
	MaxModels int `json:"max_models,omitempty"`
	// Labels are free names and values.
	Labels map[string]string `json:"labels,omitempty"`
}

// RegistrationReply answers a registration.
type RegistrationReply struct {
	Name string `json:"name"`
	// URL is where the worker is dialed: the checked address.
	URL string `json:"url"`
	// LeaseSeconds is how long the registration is valid, RenewSeconds when to renew it.
	LeaseSeconds float64 `json:"lease_seconds"`
	RenewSeconds float64 `json:"renew_seconds"`
}

// Bounds of a registration.
const (
	maxBodyBytes = 64 << 10
	maxListItems = 256 // models or GPUs
	maxLabels    = 64
	maxTextBytes = 253 // bytes of any one text
)

// DecodeRegistration decodes a registration strictly: one object, each key at most once and spelled exactly.
func DecodeRegistration(text []byte) (Registration, error) {
	r := Registration{}
	labels := json.RawMessage{}
	fields := map[string]any{
		"url": &r.URL, "gpu": &r.GPU, "models": &r.Models, "weight": &r.Weight, "engine": &r.Engine, "metrics": &r.Metrics,
		"gpu_metrics": &r.GPUMetrics, "gpus": &r.GPUs, "kv_events": &r.KVEvents, "kv_replay": &r.KVReplay, "wake": &r.Wake, "max_models": &r.MaxModels, "labels": &labels,
	}
	err := decodeObject(text, func(key string) (any, error) {
		if to := fields[key]; to != nil {
			return to, nil
		}
		return nil, fmt.Errorf("unknown key %q: %s", clipText(key), strict.SuggestName(key, slices.Sorted(maps.Keys(fields)), "keys"))
	})
	if err == nil && len(labels) > 0 && string(labels) != "null" {
		r.Labels, err = decodeLabels(labels)
	}
	if err != nil {
		return Registration{}, err
	}
	return r, r.checkBounds()
}

func decodeLabels(text []byte) (map[string]string, error) {
	values := map[string]*string{}
	err := decodeObject(text, func(key string) (any, error) {
		if len(values) >= maxLabels {
			return nil, fmt.Errorf("labels: more than %d", maxLabels)
		}
		if key == "" || !isPlainName(strings.ReplaceAll(key, "/", "-")) {
			return nil, fmt.Errorf("labels: %q is not a label's name: use letters, digits, '.', '_', '-' and '/', at most 63", clipText(key))
		}
		values[key] = new(string)
		return values[key], nil
	})
	if err != nil {
		return nil, err
	}
	out := make(map[string]string, len(values))
	for k, v := range values {
		out[k] = *v
	}
	return out, nil
}

// checkBounds checks the bounds that CheckWorkers does not.
func (r *Registration) checkBounds() error {
	texts := map[string][]string{"url": {r.URL}, "gpu": {r.GPU}, "engine": {r.Engine}, "metrics": {r.Metrics}, "gpu_metrics": {r.GPUMetrics}, "models": r.Models, "gpus": r.GPUs, "kv_events": r.KVEvents, "kv_replay": r.KVReplay}
	for _, v := range r.Labels {
		texts["labels"] = append(texts["labels"], v)
	}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if len(texts[key]) > maxListItems {
			return fmt.Errorf("%s: more than %d", key, maxListItems)
		}
		for _, s := range texts[key] {
			if len(s) > maxTextBytes || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\uFFFD' }) {
				return fmt.Errorf("%s: a text is longer than %d bytes or holds control characters", key, maxTextBytes)
			}
		}
	}
	return nil
}

// decodeObject decodes one JSON object with nothing after it. to returns the destination of a key's value.
func decodeObject(text []byte, to func(key string) (any, error)) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return errors.New("the body is not a JSON object")
	}
	seen := map[string]bool{}
	for dec.More() {
		t, err := dec.Token()
		key, ok := t.(string)
		if err != nil || !ok {
			return errors.New("the body is not valid JSON")
		}
		if seen[key] {
			return fmt.Errorf("key %q is written twice", clipText(key))
		}
		seen[key] = true
		place, err := to(key)
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return errors.New("the body is not valid JSON")
		}
		if err := json.Unmarshal(value, place); err != nil {
			return fmt.Errorf("key %q does not hold %s", clipText(key), jsonTypeOf(place))
		}
	}
	if _, err := dec.Token(); err != nil {
		return errors.New("the body is not valid JSON")
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("data follows the JSON object")
	}
	return nil
}

func clipText(s string) string { return s[:min(len(s), 64)] }

func jsonTypeOf(place any) string {
	switch place.(type) {
	case *string:
		return "a text"
	case *[]string:
		return "a list of texts"
	case *float64:
		return "a number"
	case *int:
		return "a whole number"
	case *bool:
		return "true or false"
	}
	return "an object"
}

// toWorker converts the registration to a worker whose addresses are not checked yet.
func (r *Registration) toWorker(name string) Worker {
	w := Worker{
		Name: name, URL: r.URL, GPU: r.GPU, Models: r.Models, Weight: r.Weight, Engine: r.Engine, Metrics: r.Metrics,
		GPUMetrics: r.GPUMetrics, GPUs: r.GPUs, KVEvents: slices.Clone(r.KVEvents), KVReplay: slices.Clone(r.KVReplay), Wake: r.Wake, MaxModels: r.MaxModels, Labels: r.Labels,
	}
	if w.Weight == 0 {
		w.Weight = 1
	}
	return w
}

func isSameWorker(a, b *Worker) bool { return reflect.DeepEqual(a, b) }
