package gpu

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// adapterRegistry is a worker's LoRA adapters, and whether it sleeps.
type adapterRegistry struct {
	mu        sync.Mutex
	asleep    bool
	adapters  map[string]*loraAdapter
	changedAt time.Time
	counts    LifecycleCounts
}

type loraAdapter struct {
	path    string
	created time.Time
	running int
	loading bool
}

// LifecycleCounts counts a worker's lifecycle commands since its start.
type LifecycleCounts struct{ Loads, Unloads, Sleeps, Wakes int }

// LifecycleStats returns the counts and the adapters that are loaded, sorted.
func (s *Server) LifecycleStats() (LifecycleCounts, []string) {
	s.adapters.mu.Lock()
	defer s.adapters.mu.Unlock()
	return s.adapters.counts, s.adapters.loadedNames()
}

func (h *adapterRegistry) loadedNames() (names []string) {
	for name, a := range h.adapters {
		if !a.loading {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// servedName is the name under which a request is served: that of a loaded adapter if the request names one, else the
// model's.
func (s *Server) servedName(raw []byte) string {
	var b struct {
		Model string `json:"model"`
	}
	s.adapters.mu.Lock()
	defer s.adapters.mu.Unlock()
	if len(s.adapters.adapters) > 0 && json.Unmarshal(raw, &b) == nil {
		if a := s.adapters.adapters[b.Model]; a != nil && !a.loading {
			return b.Model
		}
	}
	return s.cfg.ServedModel
}

// acquireAdapter counts a request that uses an adapter, until the returned function is called.
func (h *adapterRegistry) acquireAdapter(name string) (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.adapters[name]
	if a == nil {
		return func() {}
	}
	a.running++
	h.changedAt = time.Now()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		a.running--
		h.changedAt = time.Now()
	}
}

// refuseIfAsleep refuses requests while the engine sleeps.
func (s *Server) refuseIfAsleep(w http.ResponseWriter) bool {
	s.adapters.mu.Lock()
	defer s.adapters.mu.Unlock()
	if s.adapters.asleep {
		writeError(w, http.StatusServiceUnavailable, "the engine is asleep: POST /wake_up first")
	}
	return s.adapters.asleep
}

// addLifecycleRoutes adds vLLM's endpoints for sleeping and, if the worker takes adapters, for loading them.
func (s *Server) addLifecycleRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /sleep", s.serveSleep)
	mux.HandleFunc("POST /wake_up", s.serveWakeUp)
	mux.HandleFunc("GET /is_sleeping", func(w http.ResponseWriter, _ *http.Request) {
		s.adapters.mu.Lock()
		defer s.adapters.mu.Unlock()
		writeJSON(w, http.StatusOK, map[string]bool{"is_sleeping": s.adapters.asleep})
	})
	if s.cfg.MaxAdapters > 0 {
		mux.HandleFunc("POST /v1/load_lora_adapter", s.serveLoadAdapter)
		mux.HandleFunc("POST /v1/unload_lora_adapter", s.serveUnloadAdapter)
	}
}

func (s *Server) serveSleep(http.ResponseWriter, *http.Request) {
	s.adapters.mu.Lock()
	defer s.adapters.mu.Unlock()
	s.adapters.asleep = true
	s.adapters.counts.Sleeps++
}

// serveWakeUp takes as long as a cold start. It answers at once if the engine is awake.
func (s *Server) serveWakeUp(_ http.ResponseWriter, r *http.Request) {
	s.adapters.mu.Lock()
	s.adapters.counts.Wakes++
	asleep := s.adapters.asleep
	s.adapters.mu.Unlock()
	if asleep && s.waitColdStart(r.Context()) {
		s.adapters.mu.Lock()
		s.adapters.asleep = false
		s.adapters.mu.Unlock()
	}
}

// waitColdStart waits for the time of a load. False when the client has left.
func (s *Server) waitColdStart(ctx context.Context) bool {
	t := time.NewTimer(s.cfg.ColdStart)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

type loraBody struct {
	Name string `json:"lora_name"`
	Path string `json:"lora_path"`
}

func readLoRABody(w http.ResponseWriter, r *http.Request) (b loraBody, ok bool) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&b); err != nil || b.Name == "" || len(b.Name) > 253 {
		writeError(w, http.StatusBadRequest, "'lora_name' must be provided.")
		return b, false
	}
	return b, true
}

// serveLoadAdapter takes as long as a cold start. A path that ends in "missing" is not found. At the bound vLLM would
// evict the least recently used adapter; this worker refuses the load, so that a test detects a caller that exceeds
// the bound.
func (s *Server) serveLoadAdapter(w http.ResponseWriter, r *http.Request) {
	b, ok := readLoRABody(w, r)
	if !ok || s.refuseIfAsleep(w) {
		return
	}
	h := &s.adapters
	h.mu.Lock()
	h.counts.Loads++
	switch {
	case b.Path == "" || strings.HasSuffix(b.Path, "missing"):
		writeError(w, http.StatusNotFound, fmt.Sprintf("Loading lora %s failed: No adapter found for %s", b.Name, b.Path))
		ok = false
	case h.adapters[b.Name] != nil:
		writeError(w, http.StatusBadRequest, fmt.Sprintf("The lora adapter '%s' has already been loaded.", b.Name))
		ok = false
	case len(h.adapters) >= s.cfg.MaxAdapters:
		writeError(w, http.StatusBadRequest, fmt.Sprintf("this worker holds %d LoRA adapters and no more", s.cfg.MaxAdapters))
		ok = false
	default:
		h.adapters[b.Name] = &loraAdapter{path: b.Path, created: time.Now(), loading: true}
	}
	h.mu.Unlock()
	if !ok {
		return
	}
	done := s.waitColdStart(r.Context())
	h.mu.Lock()
	defer h.mu.Unlock()
	if !done {
		delete(h.adapters, b.Name)
		return
	}
	h.adapters[b.Name].loading = false
	_, _ = io.WriteString(w, "Success: LoRA adapter '"+b.Name+"' added successfully.")
}

func (s *Server) serveUnloadAdapter(w http.ResponseWriter, r *http.Request) {
	b, ok := readLoRABody(w, r)
	if !ok {
		return
	}
	h := &s.adapters
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Unloads++
	if a := h.adapters[b.Name]; a == nil || a.loading {
		writeError(w, http.StatusNotFound, fmt.Sprintf("The lora adapter '%s' cannot be found.", b.Name))
		return
	}
	delete(h.adapters, b.Name)
	_, _ = io.WriteString(w, "Success: LoRA adapter '"+b.Name+"' removed successfully.")
}

// adapterEntries lists the adapters as models.
func (s *Server) adapterEntries() (out []modelEntry) {
	s.adapters.mu.Lock()
	defer s.adapters.mu.Unlock()
	for _, name := range s.adapters.loadedNames() {
		a := s.adapters.adapters[name]
		out = append(out, modelEntry{ID: name, Object: "model", Created: a.created.Unix(), OwnedBy: "vllm", Root: a.path, Parent: &s.cfg.ServedModel})
	}
	return out
}

// writeMetrics writes vLLM's metrics of sleep and of adapters.
func (h *adapterRegistry) writeMetrics(p *metricsPage, adapters int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.addFamily("gauge", "engine_sleep_state", "Engine sleep state.")
	for _, state := range []string{"awake", "weights_offloaded", "discard_all"} {
		p.addSeries("engine_sleep_state", "", "sleep_state", state, map[bool]float64{true: 1}[(state == "awake") != h.asleep && state != "discard_all"])
	}
	if adapters == 0 {
		return
	}
	var running []string
	for _, name := range h.loadedNames() {
		if h.adapters[name].running > 0 {
			running = append(running, name)
		}
	}
	p.addFamily("gauge", "lora_requests_info", "Running stats on lora requests.")
	p.buf = fmt.Appendf(p.buf, "vllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=%q,waiting_lora_adapters=\"\"} %d\n",
		adapters, strings.Join(running, ","), max(h.changedAt.Unix(), 0))
}
