package gpu

import (
	"encoding/json"
	"net/http"
)

// errorBody is an error in the shape that vLLM gives it.
func errorBody(status int, message string) []byte {
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

// refuse answers with an error and counts nothing.
func refuse(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(errorBody(status, message))
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

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	entry := modelEntry{
		ID: s.cfg.Served, Object: "model", Created: s.started.Unix(), OwnedBy: "vllm",
		Root: s.cfg.Model, MaxModelLen: s.driver.limits().MaxModelLen,
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": append([]modelEntry{entry}, s.adapterEntries()...)})
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	switch c := s.chaos.get(); {
	case c.Mode == ModeFail:
		w.WriteHeader(c.Status)
	case c.Mode == ModeOOM || s.chaos.out.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusOK)
	}
}

func (s *Server) version(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"version": "0.15.1"})
}
