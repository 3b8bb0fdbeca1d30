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

// Registration is what a worker says of itself, the body of PUT /v1/workers/NAME.
type Registration struct {
	// URL is its HTTP server: scheme, host and port.
	URL string `json:"url"`
	// GPU is the type and number of its GPUs, such as H100 or H100x4.
	GPU string `json:"gpu,omitempty"`
	// Models are what it serves; empty lets it be asked.
	Models []string `json:"models,omitempty"`
	// Weight scales its share; 0 means 1.
	Weight float64 `json:"weight,omitempty"`
	// Engine is what it is; empty lets it be found out.
	Engine string `json:"engine,omitempty"`
	// Metrics and GPUMetrics are pages at the host of URL, by plain HTTP.
	Metrics    string `json:"metrics,omitempty"`
	GPUMetrics string `json:"gpu_metrics,omitempty"`
	// GPUs are those of the exporter's that are its own; empty means all.
	GPUs []string `json:"gpus,omitempty"`
	// KVEvents and KVReplay are where it publishes its cache events and answers for missed ones, tcp://host:port at the
	// host of URL, one for each data-parallel rank.
	KVEvents []string `json:"kv_events,omitempty"`
	KVReplay []string `json:"kv_replay,omitempty"`
	// Wake lets it be woken when a request finds it asleep.
	Wake bool `json:"wake,omitempty"`
	// MaxModels bounds the models that it may have loaded at one time; 0 means no bound of ours.
	MaxModels int `json:"max_models,omitempty"`
	// Labels are free names and values.
	Labels map[string]string `json:"labels,omitempty"`
}

// Lease answers a registration.
type Lease struct {
	Name string `json:"name"`
	// URL is where the worker is dialled: the address that was checked.
	URL string `json:"url"`
	// LeaseSeconds is how long the worker stays unless it registers again, RenewSeconds when it should.
	LeaseSeconds float64 `json:"lease_seconds"`
	RenewSeconds float64 `json:"renew_seconds"`
}

// Bounds of a registration.
const (
	maxBody   = 64 << 10
	maxList   = 256 // models or GPUs
	maxLabels = 64
	maxText   = 253 // bytes of any one text
)

// DecodeRegistration reads a registration strictly: one object, each key at most once and as it is written here.
func DecodeRegistration(text []byte) (Registration, error) {
	r := Registration{}
	labels := json.RawMessage{}
	fields := map[string]any{
		"url": &r.URL, "gpu": &r.GPU, "models": &r.Models, "weight": &r.Weight, "engine": &r.Engine, "metrics": &r.Metrics,
		"gpu_metrics": &r.GPUMetrics, "gpus": &r.GPUs, "kv_events": &r.KVEvents, "kv_replay": &r.KVReplay, "wake": &r.Wake, "max_models": &r.MaxModels, "labels": &labels,
	}
	err := object(text, func(key string) (any, error) {
		if to := fields[key]; to != nil {
			return to, nil
		}
		return nil, fmt.Errorf("unknown key %q: %s", clip(key), strict.Suggest(key, slices.Sorted(maps.Keys(fields)), "keys"))
	})
	if err == nil && len(labels) > 0 && string(labels) != "null" {
		r.Labels, err = decodeLabels(labels)
	}
	if err != nil {
		return Registration{}, err
	}
	return r, r.check()
}

func decodeLabels(text []byte) (map[string]string, error) {
	values := map[string]*string{}
	err := object(text, func(key string) (any, error) {
		if len(values) >= maxLabels {
			return nil, fmt.Errorf("labels: more than %d", maxLabels)
		}
		if key == "" || !plain(strings.ReplaceAll(key, "/", "-")) {
			return nil, fmt.Errorf("labels: %q is not a label's name: use letters, digits, '.', '_', '-' and '/', at most 63", clip(key))
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

// check bounds what Check does not.
func (r *Registration) check() error {
	texts := map[string][]string{"url": {r.URL}, "gpu": {r.GPU}, "engine": {r.Engine}, "metrics": {r.Metrics}, "gpu_metrics": {r.GPUMetrics}, "models": r.Models, "gpus": r.GPUs, "kv_events": r.KVEvents, "kv_replay": r.KVReplay}
	for _, v := range r.Labels {
		texts["labels"] = append(texts["labels"], v)
	}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		if len(texts[key]) > maxList {
			return fmt.Errorf("%s: more than %d", key, maxList)
		}
		for _, s := range texts[key] {
			if len(s) > maxText || strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\uFFFD' }) {
				return fmt.Errorf("%s: a text is longer than %d bytes or holds control characters", key, maxText)
			}
		}
	}
	return nil
}

// object reads one JSON object and nothing after it. to gives the place of a key's value.
func object(text []byte, to func(key string) (any, error)) error {
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
			return fmt.Errorf("key %q is written twice", clip(key))
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
			return fmt.Errorf("key %q does not hold %s", clip(key), kindOf(place))
		}
	}
	if _, err := dec.Token(); err != nil {
		return errors.New("the body is not valid JSON")
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("something follows the JSON object")
	}
	return nil
}

func clip(s string) string { return s[:min(len(s), 64)] }

func kindOf(place any) string {
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

// worker is the registration as a worker, its addresses not yet checked.
func (r *Registration) worker(name string) Worker {
	w := Worker{
		Name: name, URL: r.URL, GPU: r.GPU, Models: r.Models, Weight: r.Weight, Engine: r.Engine, Metrics: r.Metrics,
		GPUMetrics: r.GPUMetrics, GPUs: r.GPUs, KVEvents: slices.Clone(r.KVEvents), KVReplay: slices.Clone(r.KVReplay), Wake: r.Wake, MaxModels: r.MaxModels, Labels: r.Labels,
	}
	if w.Weight == 0 {
		w.Weight = 1
	}
	return w
}

func same(a, b *Worker) bool { return reflect.DeepEqual(a, b) }
