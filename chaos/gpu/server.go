package gpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
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
