// Package kubetest is an API server of Kubernetes for tests: it lists and watches objects in memory over HTTP, goes away and
// comes back at the same address, and refuses requests on demand. Only tests import it.
package kubetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// Server is the API server. Its namespace is "inference".
type Server struct {
	t    testing.TB
	addr string

	mu      sync.Mutex
	http    *http.Server
	version int64
	objects map[string]map[string]object // by resource and name
	events  []event
	changed chan struct{} // closed at the next change
	refused map[string]int
}

// Namespace is the namespace of all objects.
const Namespace = "inference"

type object map[string]any

type event struct {
	version  int64
	resource string
	old, now object // nil before it existed, and after
}

// NewServer starts a server that ends with the test.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, addr: "127.0.0.1:0", version: 1, objects: map[string]map[string]object{}, changed: make(chan struct{}), refused: map[string]int{}}
	s.Start()
	t.Cleanup(s.Stop)
	return s
}

// Start listens, at the same address as before Stop.
func (s *Server) Start() {
	s.t.Helper()
	var l net.Listener
	var err error
	for range 100 { // the port may be in use by an outgoing connection for a moment
		if l, err = net.Listen("tcp", s.addr); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		s.t.Fatalf("listening: %v", err)
	}
	h := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.mu.Lock()
	s.addr, s.http = l.Addr().String(), h
	s.mu.Unlock()
	go func() {
		if err := h.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.t.Errorf("serving: %v", err)
		}
	}()
}

// Stop closes the listener and every connection.
func (s *Server) Stop() {
	s.mu.Lock()
	h := s.http
	s.http = nil
	s.mu.Unlock()
	if h != nil {
		_ = h.Close()
	}
}

// Kubeconfig writes a file with the server's address and returns its name.
func (s *Server) Kubeconfig() string {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "http://%s"}}]
contexts: [{name: test, context: {cluster: test, namespace: %s, user: test}}]
users: [{name: test, user: {}}]
current-context: test
`, s.addr, Namespace)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// Put creates or replaces an object. resource is its plural, such as pods.
func (s *Server) Put(resource string, v any) {
	s.t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		s.t.Fatal(err)
	}
	o := object{}
	if err := json.Unmarshal(text, &o); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	o.metadata()["resourceVersion"] = strconv.FormatInt(s.version, 10)
	o.metadata()["namespace"] = Namespace
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]object{}
	}
	s.addEvent(resource, s.objects[resource][o.name()], o)
	s.objects[resource][o.name()] = o
}

// Delete removes an object.
func (s *Server) Delete(resource, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[resource][name]; o != nil {
		delete(s.objects[resource], name)
		s.version++
		s.addEvent(resource, o, nil)
	}
}

// Refuse makes the server answer requests for a resource with a status; 0 ends that.
func (s *Server) Refuse(resource string, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused[resource] = status
}

func (s *Server) addEvent(resource string, old, now object) {
	s.events = append(s.events, event{s.version, resource, old, now})
	close(s.changed)
	s.changed = make(chan struct{})
}

func (o object) metadata() map[string]any { return o["metadata"].(map[string]any) }
func (o object) name() string             { return o.metadata()["name"].(string) }

// isSelected reports whether selectors of labels and fields match the object.
func (o object) isSelected(byLabel labels.Selector, byName string) bool {
	if o == nil || byName != "" && byName != o.name() {
		return false
	}
	set := labels.Set{}
	if all, ok := o.metadata()["labels"].(map[string]any); ok {
		for k, v := range all {
			set[k] = v.(string)
		}
	}
	return byLabel.Matches(set)
}

// groupVersions are the resources that the server has.
var groupVersions = map[string]string{
	"endpointslices": "/apis/discovery.k8s.io/v1", "pods": "/api/v1", "inferencepools": "/apis/inference.networking.k8s.io/v1",
}

// ServeHTTP lists and watches.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	s.mu.Lock()
	status := s.refused[resource]
	s.mu.Unlock()
	if r.URL.Path != groupVersions[resource]+"/namespaces/"+Namespace+"/"+resource || status == http.StatusNotFound {
		http.NotFound(w, r) // as for an API that is not installed
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if status != 0 {
		w.WriteHeader(status)
		reason := map[int]string{http.StatusForbidden: "Forbidden", http.StatusUnauthorized: "Unauthorized"}[status]
		s.write(w, object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": status, "message": "refused by the test"})
		return
	}
	byLabel, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	byName := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	if on, _ := strconv.ParseBool(r.URL.Query().Get("watch")); on {
		since, _ := strconv.ParseInt(r.URL.Query().Get("resourceVersion"), 10, 64)
		s.watch(w, r, resource, since, func(o object) bool { return o.isSelected(byLabel, byName) })
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []object{}
	for _, name := range slices.Sorted(maps.Keys(s.objects[resource])) {
		if o := s.objects[resource][name]; o.isSelected(byLabel, byName) {
			items = append(items, o)
		}
	}
	s.write(w, object{"kind": "List", "apiVersion": "v1", "metadata": object{"resourceVersion": strconv.FormatInt(s.version, 10)}, "items": items})
}

func (s *Server) write(w http.ResponseWriter, v any) {
	_ = json.NewEncoder(w).Encode(v) // the client may have left
}

// watch streams the events after a version.
func (s *Server) watch(w http.ResponseWriter, r *http.Request, resource string, since int64, isSelected func(object) bool) {
	flusher := http.NewResponseController(w)
	_ = flusher.Flush() // the client may have left
	for {
		s.mu.Lock()
		changed := s.changed
		for _, e := range s.events {
			if e.version <= since || e.resource != resource {
				continue
			}
			before, after := isSelected(e.old), isSelected(e.now)
			switch {
			case after && before:
				s.write(w, object{"type": "MODIFIED", "object": e.now})
			case after:
				s.write(w, object{"type": "ADDED", "object": e.now})
			case before:
				gone := maps.Clone(e.old)
				gone["metadata"] = maps.Clone(e.old.metadata())
				gone.metadata()["resourceVersion"] = strconv.FormatInt(e.version, 10)
				s.write(w, object{"type": "DELETED", "object": gone})
			}
		}
		since = s.version
		s.mu.Unlock()
		_ = flusher.Flush() // the client may have left
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}
