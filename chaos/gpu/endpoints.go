package gpu

import (
	"encoding/json"
	"net/http"
)

// encodeError is an error in vLLM's format.
func encodeError(status int, message string) []byte {
	kind := "BadRequestError"
	switch {
	case status == http.StatusNotFound:
		kind = "NotFoundError"
	case status >= 500:
		kind = "InternalServerError"
	}
	b, _ := json.Marshal(map[string]any{ // strings and numbers always encode
		"error": map[string]any{"message": message, "type": kind, "param": nil, "code": status},
	})
	return b
}

// writeError answers with an error and does not count it.
func writeError(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(encodeError(status, message))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v)
}

// modelEntry is one served model.
type modelEntry struct {
	ID          string  `json:"id"`
	Object      string  `json:"object"`
	Created     int64   `json:"created"`
	OwnedBy     string  `json:"owned_by"`
	Root        string  `json:"root"`
	Parent      *string `json:"parent"`
	MaxModelLen int     `json:"max_model_len"`
}

func (s *Server) serveModels(w http.ResponseWriter, _ *http.Request) {
	entry := modelEntry{
		ID: s.cfg.ServedModel, Object: "model", Created: s.started.Unix(), OwnedBy: "vllm",
		Root: s.cfg.Model, MaxModelLen: s.driver.engineLimits().MaxModelLen,
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": append([]modelEntry{entry}, s.adapterEntries()...)})
}

func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	switch c := s.chaos.loadCurrent(); {
	case c.Mode == ModeFail:
		w.WriteHeader(c.Status)
	case c.Mode == ModeOOM || s.chaos.memoryGone.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusOK)
	}
}

func (s *Server) serveVersion(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"version": "0.15.1"})
}
