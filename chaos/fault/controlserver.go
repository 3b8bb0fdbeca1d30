package fault

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// maxSpecBytes bounds the body of a call.
const maxSpecBytes = 64 << 10

// controlServer serves a place on a unix socket.
type controlServer struct {
	http   *http.Server
	ended  chan struct{}
	socket string
}

// serveControl starts to serve a place; extra adds its own pages.
func serveControl(socket string, p *place, extra map[string]http.HandlerFunc) (*controlServer, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, err
	}
	os.Remove(socket) // of a killed process: the lock shows that none other serves it
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /inject", func(w http.ResponseWriter, r *http.Request) {
		var s Spec
		dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxSpecBytes))
		dec.DisallowUnknownFields()
		err := dec.Decode(&s)
		if err == nil {
			err = p.inject(r.Context(), s)
		}
		answerCall(w, nil, err)
	})
	mux.HandleFunc("POST /renew/{id}", func(w http.ResponseWriter, r *http.Request) {
		answerCall(w, nil, p.renew(r.Context(), r.PathValue("id")))
	})
	mux.HandleFunc("POST /clear/{id}", func(w http.ResponseWriter, r *http.Request) {
		answerCall(w, nil, p.clear(r.Context(), r.PathValue("id")))
	})
	mux.HandleFunc("GET /verify/{id}", func(w http.ResponseWriter, r *http.Request) {
		s, err := p.verify(r.Context(), r.PathValue("id"))
		answerCall(w, s, err)
	})
	mux.HandleFunc("GET /state/{id}", func(w http.ResponseWriter, r *http.Request) {
		answerCall(w, p.describeID(r.PathValue("id")), nil)
	})
	mux.HandleFunc("GET /faults", func(w http.ResponseWriter, _ *http.Request) { answerCall(w, p.list(), nil) })
	for pattern, h := range extra {
		mux.HandleFunc(pattern, h)
	}
	s := &controlServer{http: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}, ended: make(chan struct{}), socket: socket}
	go func() {
		defer close(s.ended)
		s.http.Serve(ln)
	}()
	return s, nil
}

// callError is the answer to a refused call.
type callError struct {
	Error string `json:"error"`
}

func answerCall(w http.ResponseWriter, body any, err error) {
	w.Header().Set("Content-Type", "application/json")
	if err != nil {
		w.WriteHeader(http.StatusUnprocessableEntity)
		body = callError{err.Error()}
	}
	json.NewEncoder(w).Encode(body)
}

func (s *controlServer) stop(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	<-s.ended
	return err
}
