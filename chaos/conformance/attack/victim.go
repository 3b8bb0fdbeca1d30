package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
)

// Markers in a request make the victim that gets it misbehave.
const (
	markBreakBefore = "attack-die"      // the connection breaks before an answer
	markBreakLate   = "attack-cut"      // the connection breaks after the first event
	markTooLong     = "attack-too-long" // a stream whose first event is an error of the client's own
	markEcho        = "attack-echo"     // a 500 that echoes the prompt
	markBusy        = "attack-busy"     // the worker's own 503
	markHold        = "attack-hold"     // no answer for as long as the client waits
)

// secretMark is in every page that no tenant may read.
const secretMark = "page-of-the-worker-itself"

// victimWorker is a worker: a simulated one behind a server that counts what reaches it.
type victimWorker struct {
	name   string
	engine *gpu.Server
	server *http.Server
	proxy  *httputil.ReverseProxy

	mu           sync.Mutex
	paths        map[string]int // requests that were not the scrapes and probes of Spillway itself
	deaths       int
	bytes        int64 // of request bodies
	underWay     int   // requests under way
	heldRequests int   // of them, those that get no answer
}

// startVictim serves at the address that the fleet's files give the worker.
func startVictim(ctx context.Context, n fleet.Node) (*victimWorker, error) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	engine, err := gpu.New(gpu.Config{Listener: inner, GPU: n.GPU, Model: n.Model, ServedModel: strings.ToLower(n.Model), Seed: 1, Speed: 4})
	if err != nil {
		return nil, err
	}
	if err := engine.Start(ctx); err != nil {
		return nil, err
	}
	to, err := url.Parse(engine.URL())
	if err != nil {
		return nil, err
	}
	v := &victimWorker{name: n.Region + "/" + n.Zone + "/" + n.Name, engine: engine, paths: map[string]int{}}
	v.proxy = httputil.NewSingleHostReverseProxy(to)
	v.proxy.FlushInterval = -1
	v.proxy.ErrorLog = log.New(io.Discard, "", 0) // clients that leave are part of the attacks
	listener, err := net.Listen("tcp", n.Addr["http"].String())
	if err != nil {
		return nil, fmt.Errorf("worker %s: %w", v.name, err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	v.server = &http.Server{Handler: v, ReadHeaderTimeout: 10 * time.Second, Protocols: protocols}
	go func() { _ = v.server.Serve(listener) }()
	return v, nil
}

// isOwnProbe are the pages that Spillway itself reads on a worker of this kind.
func isOwnProbe(r *http.Request) bool {
	if r.Header.Get("Upgrade") != "" {
		return false
	}
	switch r.URL.Path {
	case "/health", "/metrics", "/v1/models", "/version", "/get_model_info":
		return r.Method == http.MethodGet
	}
	return false
}

// ServeHTTP counts the request and serves it, or does what its marker asks for.
func (v *victimWorker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if isOwnProbe(r) {
		v.proxy.ServeHTTP(w, r)
		return
	}
	v.withLock(func() { v.paths[r.URL.Path]++; v.underWay++ })
	defer v.withLock(func() { v.underWay-- })
	if r.Header.Get("Upgrade") != "" {
		http.Error(w, secretMark, http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<20))
	v.withLock(func() { v.bytes += int64(len(body)) })
	if err != nil {
		return
	}
	switch text := string(body); {
	case strings.Contains(text, markBreakBefore):
		v.withLock(func() { v.deaths++ })
		panic(http.ErrAbortHandler)
	case strings.Contains(text, markBreakLate):
		v.writeEvent(w, `{"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"one"}}]}`)
		v.withLock(func() { v.deaths++ })
		panic(http.ErrAbortHandler)
	case strings.Contains(text, markTooLong):
		v.writeEvent(w, `{"error":{"message":"the prompt is longer than the context","type":"BadRequestError","code":400}}`)
	case strings.Contains(text, markEcho):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, `{"error":{"message":%q,"type":"InternalServerError","code":500}}`, "cannot parse the request: "+text)
	case strings.Contains(text, markBusy):
		http.Error(w, `{"error":{"message":"The server is overloaded","code":503}}`, http.StatusServiceUnavailable)
	case strings.Contains(text, markHold):
		v.withLock(func() { v.heldRequests++ })
		defer v.withLock(func() { v.heldRequests-- })
		<-r.Context().Done()
	default:
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
		v.proxy.ServeHTTP(w, r)
	}
}

func (v *victimWorker) writeEvent(w http.ResponseWriter, data string) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: %s\n\n", data)
	_ = http.NewResponseController(w).Flush()
}

func (v *victimWorker) withLock(f func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f()
}

func (v *victimWorker) resetCounts() {
	v.withLock(func() { v.paths, v.deaths, v.bytes = map[string]int{}, 0, 0 })
}

func (v *victimWorker) stopWorker(ctx context.Context) {
	_ = v.server.Close()
	_ = v.engine.Stop(ctx)
}
