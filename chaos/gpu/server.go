package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config describes one simulated worker.
type Config struct {
	// Listen is the address to serve on; "127.0.0.1:0" picks a port.
	Listen string
	// Listener is used instead of Listen if set.
	Listener net.Listener
	// GPU is the kind of card: T4, L4, L40S, A100, H100, H200 or B200.
	GPU string
	// Model is the simulated model, such as "Llama-3.1-8B".
	Model string
	// ServedModel is the model id in requests. Default: Model as written.
	ServedModel string
	// TP is the number of GPUs in tensor parallelism. 0 means the fewest that hold the model.
	TP int
	// Seed makes step times and answers repeatable.
	Seed uint64
	// AnswerSeed stands for the model's weights: workers with the same value give the same answer to a prompt.
	// Default: Seed.
	AnswerSeed uint64
	// Speed scales time: 10 runs everything ten times as fast. Default 1.
	Speed float64
	// ColdStart is the time to wake up or to load an adapter, in wall time. 0 is at once.
	ColdStart time.Duration
	// MaxAdapters bounds the LoRA adapters that are loaded at one time. 0 disables them and their endpoints.
	MaxAdapters int
	// Limits bound batches, sequences, context and the queue. Zero fields take the engine's defaults.
	Limits EngineLimits
	// KVEvents is the address on which cache events are published, as in vLLM; empty publishes none.
	KVEvents string
	// KVReplay is the address for replay requests; empty answers none.
	KVReplay string
	// KVEventsListener and KVReplayListener are used instead of the two addresses if set.
	KVEventsListener, KVReplayListener net.Listener
	// KVArrays encodes events as arrays, as older engines do, instead of maps.
	KVArrays bool
	// MaxBody bounds a request's body, in bytes. Default 16 MiB.
	MaxBody int64
	// APIKeys returns the API keys of which a request must have one, except for the health page. It is called for
	// each request.
	// nil: no key is needed.
	APIKeys func() []string
	// TokenSpacing is the delay between the tokens of a step, as with an API server of one thread. With 0 their order
	// depends on the scheduler, which tests that compare two runs cannot tolerate.
	TokenSpacing time.Duration
	// Log receives log messages. nil discards them.
	Log *slog.Logger
}

// Server is one worker over HTTP. It is for a single use.
type Server struct {
	cfg           Config
	profile       WorkerProfile
	log           *slog.Logger
	listener      net.Listener
	http          *http.Server
	driver        *engineDriver
	metrics       *workerMetrics
	chaos         chaosState
	adapters      adapterRegistry
	chaosRand     lockedRand
	lastID        atomic.Uint64
	takenRequests atomic.Uint64
	started       time.Time
	handlers      sync.WaitGroup
	cancel        context.CancelFunc
}

// New checks the configuration and binds the listener.
func New(c Config) (*Server, error) {
	profile, err := LookupProfile(c.GPU, c.Model, c.TP)
	if err != nil {
		return nil, fmt.Errorf("choosing the simulated worker: %w", err)
	}
	if c.Speed < 0 {
		return nil, fmt.Errorf("speed %v: use a positive number, 1 is real time", c.Speed)
	}
	if c.Speed == 0 {
		c.Speed = 1
	}
	if c.AnswerSeed == 0 {
		c.AnswerSeed = c.Seed
	}
	if c.ServedModel == "" {
		c.ServedModel = c.Model
	}
	if c.MaxBody <= 0 {
		c.MaxBody = 16 << 20
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	engine, err := NewEngine(EngineConfig{
		Profile: profile, Limits: c.Limits, Salt: c.Seed,
		Rand: rand.New(rand.NewPCG(c.Seed, 0x5717)),
	})
	if err != nil {
		return nil, err
	}
	listener := c.Listener
	if listener == nil {
		listener, err = net.Listen("tcp", c.Listen)
	}
	if err != nil {
		return nil, fmt.Errorf("worker %s cannot listen on %s: %w", c.ServedModel, c.Listen, err)
	}
	s := &Server{
		cfg: c, profile: profile, log: c.Log, listener: listener,
		metrics: newWorkerMetrics(), chaosRand: lockedRand{rng: rand.New(rand.NewPCG(c.Seed, 0xc4a05))},
		cancel: func() {}, adapters: adapterRegistry{adapters: map[string]*loraAdapter{}},
	}
	s.driver = newDriver(engine, c.Speed, s.metrics)
	if c.KVEvents != "" || c.KVEventsListener != nil {
		if s.driver.publisher, err = newEventPublisher(&s.cfg); err != nil {
			listener.Close()
			return nil, err
		}
		s.driver.arrayEvents, engine.cache.journal = c.KVArrays, &cacheJournal{}
	}
	s.chaos.driver, s.chaos.metrics, s.chaos.log = s.driver, s.metrics, s.log
	s.chaos.storeCurrent(Chaos{Mode: ModeOK})
	return s, nil
}

// SetChaos sets or ends a misbehavior. The error names the field to correct.
func (s *Server) SetChaos(c Chaos) error { return s.chaos.setMode(c) }

// Addr returns the address that is served.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URL returns the worker's base URL.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// KVEventsURL is where cache events are published, tcp://host:port; empty if they are not.
func (s *Server) KVEventsURL() string {
	if s.driver.publisher == nil {
		return ""
	}
	return "tcp://" + s.driver.publisher.eventListener.Addr().String()
}

// KVReplayURL is where replay requests are answered.
func (s *Server) KVReplayURL() string {
	if s.driver.publisher == nil || s.driver.publisher.replayListener == nil {
		return ""
	}
	return "tcp://" + s.driver.publisher.replayListener.Addr().String()
}

// resetPrefixCache empties the prefix cache, as vLLM's endpoint of that name does.
func (s *Server) resetPrefixCache(w http.ResponseWriter, _ *http.Request) {
	if !s.driver.resetCache() {
		http.Error(w, "blocks are in use: retry when no request runs", http.StatusServiceUnavailable)
	}
}

// Profile returns the simulated profile.
func (s *Server) Profile() WorkerProfile { return s.profile }

// Gauges returns the engine's current state.
func (s *Server) Gauges() Gauges {
	gauges, _ := s.driver.engineStats()
	return gauges
}

// TakenRequests returns how many generation requests have been received, with any outcome.
func (s *Server) TakenRequests() uint64 { return s.takenRequests.Load() }

// Start serves until Stop. It returns at once.
func (s *Server) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting worker %s: %w", s.cfg.ServedModel, err)
	}
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel, s.started = stop, time.Now()
	s.http = &http.Server{
		Handler:           s.newHandler(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.driver.startLoop()
	if p := s.driver.publisher; p != nil {
		p.startServing()
	}
	go func() {
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("worker stopped serving", "error", err)
		}
	}()
	s.log.Info("worker serves", "addr", s.Addr().String(), "model", s.cfg.ServedModel, "gpu", s.profile.GPU)
	return nil
}

// Stop lets answers finish until ctx is done, then cuts them. With a context that is already done it acts as a killed
// process.
func (s *Server) Stop(ctx context.Context) error {
	s.chaos.stopTimers()
	if p := s.driver.publisher; p != nil {
		defer p.stopServing()
	}
	if s.http == nil {
		return s.listener.Close()
	}
	if ctx.Err() != nil || s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	s.cancel()
	s.handlers.Wait()
	s.driver.stopLoop()
	return nil
}

func (s *Server) newHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.generationHandler(kindChat))
	mux.HandleFunc("POST /v1/completions", s.generationHandler(kindCompletion))
	mux.HandleFunc("POST /v1/messages", s.generationHandler(kindAnthropic))
	mux.HandleFunc("POST /v1/embeddings", s.serveEmbeddings)
	mux.HandleFunc("GET /v1/models", s.serveModels)
	mux.HandleFunc("GET /health", s.serveHealth)
	mux.HandleFunc("GET /ping", s.serveHealth)
	mux.HandleFunc("GET /version", s.serveVersion)
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	s.addLifecycleRoutes(mux)
	mux.HandleFunc("POST /reset_prefix_cache", s.resetPrefixCache)
	mux.HandleFunc("GET /chaos", s.chaos.serveChaos)
	mux.HandleFunc("POST /chaos", s.chaos.changeChaos)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handlers.Add(1)
		defer s.handlers.Done()
		if s.resetByChaos(w, r) {
			return
		}
		if !s.isAuthorized(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isAuthorized reports whether a request may be served: it has one of the keys, or is for the health page.
func (s *Server) isAuthorized(r *http.Request) bool {
	if s.chaos.loadCurrent().Mode == ModeKeyRevoked && r.URL.Path != "/health" && r.URL.Path != "/chaos" {
		return false
	}
	if s.cfg.APIKeys == nil || r.URL.Path == "/health" {
		return true
	}
	shown, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return shown != "" && slices.Contains(s.cfg.APIKeys(), shown)
}

// lockedRand is a seeded random source for concurrent handlers.
type lockedRand struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (c *lockedRand) drawFloat() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.Float64()
}

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
	case c.Mode == ModeLieHealth && !c.Healthy:
		w.WriteHeader(http.StatusServiceUnavailable)
	case c.Mode == ModeOOM || s.chaos.memoryGone.Load():
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		w.WriteHeader(http.StatusOK)
	}
}

func (s *Server) serveVersion(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"version": "0.15.1"})
}

func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	g, c := s.driver.engineStats()
	if s.chaos.loadCurrent().Mode == ModeLieMetrics {
		g.Running, g.Waiting, g.KVUsage = 0, 0, 0
	}
	p := &metricsPage{labels: `engine="0",model_name=` + strconv.Quote(s.cfg.ServedModel), buf: make([]byte, 0, 16<<10)}
	p.addSingle("gauge", "num_requests_running", "Number of requests in model execution batches.", float64(g.Running))
	p.addSingle("gauge", "num_requests_waiting", "Number of requests waiting to be processed.", float64(g.Waiting))
	p.addSingle("gauge", "kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", g.KVUsage)
	p.addFamily("gauge", "cache_config_info", "Information of the LLMEngine CacheConfig")
	p.buf = fmt.Appendf(p.buf, "vllm:cache_config_info{block_size=\"%d\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"0\",gpu_memory_utilization=\"0.9\",num_gpu_blocks=\"%d\"} 1\n", BlockTokens, g.KVBlocks)
	p.addSingle("counter", "prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", float64(c.PrefixQueries))
	p.addSingle("counter", "prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", float64(c.PrefixHits))
	p.addSingle("counter", "num_preemptions_total", "Cumulative number of preemption from the engine.", float64(c.Preemptions))
	p.addSingle("counter", "prompt_tokens_total", "Number of prefill tokens processed.", float64(c.PromptTokens))
	p.addSingle("counter", "generation_tokens_total", "Number of generation tokens processed.", float64(c.GeneratedTokens))
	p.addFamily("counter", "request_success_total", "Count of successfully processed requests.")
	m := s.metrics
	for o := range finishReasonCount {
		p.addSeries("request_success_total", "", "finished_reason", o.String(), float64(m.endedRequests[o].Load()))
	}
	s.adapters.writeMetrics(p, s.cfg.MaxAdapters)
	for _, h := range []*histogram{m.ttft, m.itl, m.e2e, m.queue, m.prefill, m.decode} {
		p.addHistogram(h)
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Write(p.buf)
}
