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

// shelf is what a worker holds beside its model: LoRA adapters, and whether it sleeps.
type shelf struct {
	mu       sync.Mutex
	asleep   bool
	adapters map[string]*adapter
	changed  time.Time
	counts   ShelfCounts
}

type adapter struct {
	path    string
	created time.Time
	running int
	loading bool
}

// ShelfCounts are what a worker was told to do since its start.
type ShelfCounts struct{ Loads, Unloads, Sleeps, Wakes int }

// Shelf returns the counts and the adapters that are loaded, sorted.
func (s *Server) Shelf() (ShelfCounts, []string) {
	s.shelf.mu.Lock()
	defer s.shelf.mu.Unlock()
	return s.shelf.counts, s.shelf.loaded()
}

func (h *shelf) loaded() (names []string) {
	for name, a := range h.adapters {
		if !a.loading {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// serves is the name under which a request is served: its own if it names an adapter that is loaded, else the model's.
func (s *Server) serves(raw []byte) string {
	var b struct {
		Model string `json:"model"`
	}
	s.shelf.mu.Lock()
	defer s.shelf.mu.Unlock()
	if len(s.shelf.adapters) > 0 && json.Unmarshal(raw, &b) == nil {
		if a := s.shelf.adapters[b.Model]; a != nil && !a.loading {
			return b.Model
		}
	}
	return s.cfg.Served
}

// use counts a request that runs with an adapter, until the returned function is called.
func (h *shelf) use(name string) (done func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.adapters[name]
	if a == nil {
		return func() {}
	}
	a.running++
	h.changed = time.Now()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		a.running--
		h.changed = time.Now()
	}
}

// sleeping refuses what a sleeping engine cannot do.
func (s *Server) sleeping(w http.ResponseWriter) bool {
	s.shelf.mu.Lock()
	defer s.shelf.mu.Unlock()
	if s.shelf.asleep {
		refuse(w, http.StatusServiceUnavailable, "the engine is asleep: POST /wake_up first")
	}
	return s.shelf.asleep
}

// shelfRoutes are vLLM's endpoints for sleeping and, where the worker takes adapters, for loading them.
func (s *Server) shelfRoutes(mux *http.ServeMux) {
	mux.HandleFunc("POST /sleep", s.sleep)
	mux.HandleFunc("POST /wake_up", s.wakeUp)
	mux.HandleFunc("GET /is_sleeping", func(w http.ResponseWriter, _ *http.Request) {
		s.shelf.mu.Lock()
		defer s.shelf.mu.Unlock()
		writeJSON(w, http.StatusOK, map[string]bool{"is_sleeping": s.shelf.asleep})
	})
	if s.cfg.Adapters > 0 {
		mux.HandleFunc("POST /v1/load_lora_adapter", s.loadAdapter)
		mux.HandleFunc("POST /v1/unload_lora_adapter", s.unloadAdapter)
	}
}

func (s *Server) sleep(http.ResponseWriter, *http.Request) {
	s.shelf.mu.Lock()
	defer s.shelf.mu.Unlock()
	s.shelf.asleep = true
	s.shelf.counts.Sleeps++
}

// wakeUp takes as long as a cold start. One that is awake answers at once.
func (s *Server) wakeUp(_ http.ResponseWriter, r *http.Request) {
	s.shelf.mu.Lock()
	s.shelf.counts.Wakes++
	asleep := s.shelf.asleep
	s.shelf.mu.Unlock()
	if asleep && s.coldStart(r.Context()) {
		s.shelf.mu.Lock()
		s.shelf.asleep = false
		s.shelf.mu.Unlock()
	}
}

// coldStart waits as long as a load takes. False when the caller has left.
func (s *Server) coldStart(ctx context.Context) bool {
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

func readLora(w http.ResponseWriter, r *http.Request) (b loraBody, ok bool) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&b); err != nil || b.Name == "" || len(b.Name) > 253 {
		refuse(w, http.StatusBadRequest, "'lora_name' must be provided.")
		return b, false
	}
	return b, true
}

// loadAdapter takes as long as a cold start. A path that ends in "missing" is not found. vLLM would throw the adapter out
// that was used the longest ago when there are too many; this worker refuses one more than fits, so that who overfills it
// is found out.
func (s *Server) loadAdapter(w http.ResponseWriter, r *http.Request) {
	b, ok := readLora(w, r)
	if !ok || s.sleeping(w) {
		return
	}
	h := &s.shelf
	h.mu.Lock()
	h.counts.Loads++
	switch {
	case b.Path == "" || strings.HasSuffix(b.Path, "missing"):
		refuse(w, http.StatusNotFound, fmt.Sprintf("Loading lora %s failed: No adapter found for %s", b.Name, b.Path))
		ok = false
	case h.adapters[b.Name] != nil:
		refuse(w, http.StatusBadRequest, fmt.Sprintf("The lora adapter '%s' has already been loaded.", b.Name))
		ok = false
	case len(h.adapters) >= s.cfg.Adapters:
		refuse(w, http.StatusBadRequest, fmt.Sprintf("this worker holds %d LoRA adapters and no more", s.cfg.Adapters))
		ok = false
	default:
		h.adapters[b.Name] = &adapter{path: b.Path, created: time.Now(), loading: true}
	}
	h.mu.Unlock()
	if !ok {
		return
	}
	done := s.coldStart(r.Context())
	h.mu.Lock()
	defer h.mu.Unlock()
	if !done {
		delete(h.adapters, b.Name)
		return
	}
	h.adapters[b.Name].loading = false
	_, _ = io.WriteString(w, "Success: LoRA adapter '"+b.Name+"' added successfully.")
}

func (s *Server) unloadAdapter(w http.ResponseWriter, r *http.Request) {
	b, ok := readLora(w, r)
	if !ok {
		return
	}
	h := &s.shelf
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts.Unloads++
	if a := h.adapters[b.Name]; a == nil || a.loading {
		refuse(w, http.StatusNotFound, fmt.Sprintf("The lora adapter '%s' cannot be found.", b.Name))
		return
	}
	delete(h.adapters, b.Name)
	_, _ = io.WriteString(w, "Success: LoRA adapter '"+b.Name+"' removed successfully.")
}

// entries lists the adapters as models.
func (s *Server) adapterEntries() (out []modelEntry) {
	s.shelf.mu.Lock()
	defer s.shelf.mu.Unlock()
	for _, name := range s.shelf.loaded() {
		a := s.shelf.adapters[name]
		out = append(out, modelEntry{ID: name, Object: "model", Created: a.created.Unix(), OwnedBy: "vllm", Root: a.path, Parent: &s.cfg.Served})
	}
	return out
}

// metrics writes what vLLM says of sleep and of adapters.
func (h *shelf) metrics(p *page, adapters int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.family("gauge", "engine_sleep_state", "Engine sleep state.")
	for _, state := range []string{"awake", "weights_offloaded", "discard_all"} {
		p.line("engine_sleep_state", "", "sleep_state", state, map[bool]float64{true: 1}[(state == "awake") != h.asleep && state != "discard_all"])
	}
	if adapters == 0 {
		return
	}
	var running []string
	for _, name := range h.loaded() {
		if h.adapters[name].running > 0 {
			running = append(running, name)
		}
	}
	p.family("gauge", "lora_requests_info", "Running stats on lora requests.")
	p.b = fmt.Appendf(p.b, "vllm:lora_requests_info{max_lora=\"%d\",running_lora_adapters=%q,waiting_lora_adapters=\"\"} %d\n",
		adapters, strings.Join(running, ","), max(h.changed.Unix(), 0))
}
