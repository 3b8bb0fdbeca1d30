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

// Config describes one stand-in worker.
type Config struct {
	// Listen is the address to serve on; "127.0.0.1:0" picks a port.
	Listen string
	// Listener is used instead of Listen where it is given.
	Listener net.Listener
	// GPU is the kind of card: T4, L4, L40S, A100, H100, H200 or B200.
	GPU string
	// Model is what is simulated, such as "Llama-3.1-8B".
	Model string
	// Served is the model id that clients ask for. Default: Model as written.
	Served string
	// TP is how many cards work as one. 0 means the fewest that hold the model.
	TP int
	// Seed makes step times and answers repeatable.
	Seed uint64
	// Answers names the model's weights: workers with the same give the same answer to one prompt. Default: Seed.
	Answers uint64
	// Speed scales life: 10 runs everything ten times as fast. Default 1.
	Speed float64
	// ColdStart is how long waking up or loading an adapter takes, on the wall's clock. 0 is at once.
	ColdStart time.Duration
	// Adapters bounds the LoRA adapters that are held at one time. 0 takes none, and has no endpoints for them.
	Adapters int
	// Limits bound batches, sequences, context and the queue. Zero fields take the engine's defaults.
	Limits Limits
	// KVEvents is the address to publish cache events on, as vLLM does; empty publishes none.
	KVEvents string
	// KVReplay is the address to answer for missed ones on; empty answers for none.
	KVReplay string
	// KVEventsListener and KVReplayListener are used instead of the two where they are given.
	KVEventsListener, KVReplayListener net.Listener
	// KVArrays writes events as arrays, as engines used to, instead of maps.
	KVArrays bool
	// MaxBody bounds a request's body, in bytes. Default 16 MiB.
	MaxBody int64
	// Keys returns the API keys of which callers must show one, for all but the health page. It is called at each request.
	// Nil: every caller is served.
	Keys func() []string
	// Apart is how long after the one before it each token of a step is sent, as by an API server of one thread. 0 leaves
	// their order to the machine, which tests that compare two runs cannot have.
	Apart time.Duration
	// Log receives what happens. Nil discards.
	Log *slog.Logger
}

// Server is one worker over HTTP. It is single use.
type Server struct {
	cfg      Config
	profile  Profile
	log      *slog.Logger
	listener net.Listener
	http     *http.Server
	driver   *driver
	metrics  *metrics
	chaos    chaosBox
	shelf    shelf
	chance   chance
	ids      atomic.Uint64
	taken    atomic.Uint64
	started  time.Time
	handlers sync.WaitGroup
	stop     context.CancelFunc
}

// New checks the configuration and binds the listener.
func New(c Config) (*Server, error) {
	profile, err := Lookup(c.GPU, c.Model, c.TP)
	if err != nil {
		return nil, fmt.Errorf("choosing the simulated worker: %w", err)
	}
	if c.Speed < 0 {
		return nil, fmt.Errorf("speed %v: use a positive number, 1 is life", c.Speed)
	}
	if c.Speed == 0 {
		c.Speed = 1
	}
	if c.Answers == 0 {
		c.Answers = c.Seed
	}
	if c.Served == "" {
		c.Served = c.Model
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
		return nil, fmt.Errorf("worker %s wants %s: %w", c.Served, c.Listen, err)
	}
	s := &Server{
		cfg: c, profile: profile, log: c.Log, listener: listener,
		metrics: newMetrics(), chance: chance{rng: rand.New(rand.NewPCG(c.Seed, 0xc4a05))},
		stop: func() {}, shelf: shelf{adapters: map[string]*adapter{}},
	}
	s.driver = newDriver(engine, c.Speed, s.metrics)
	if c.KVEvents != "" || c.KVEventsListener != nil {
		if s.driver.publisher, err = newPublisher(&s.cfg); err != nil {
			listener.Close()
			return nil, err
		}
		s.driver.array, engine.pool.journal = c.KVArrays, &journal{}
	}
	s.chaos.set(Chaos{Mode: ModeOK})
	return s, nil
}

// Addr returns the address that is served.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URL returns the worker's base URL.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// KVEvents is where cache events are published, tcp://host:port; empty where they are not.
func (s *Server) KVEvents() string {
	if s.driver.publisher == nil {
		return ""
	}
	return "tcp://" + s.driver.publisher.events.Addr().String()
}

// KVReplay is where missed cache events are answered for.
func (s *Server) KVReplay() string {
	if s.driver.publisher == nil || s.driver.publisher.again == nil {
		return ""
	}
	return "tcp://" + s.driver.publisher.again.Addr().String()
}

// resetPrefixCache empties the prefix cache, as vLLM's endpoint of that name does.
func (s *Server) resetPrefixCache(w http.ResponseWriter, _ *http.Request) {
	if !s.driver.forget() {
		http.Error(w, "blocks are in use: ask again when nothing runs", http.StatusServiceUnavailable)
	}
}

// Profile returns what is simulated.
func (s *Server) Profile() Profile { return s.profile }

// Gauges returns the engine's present state.
func (s *Server) Gauges() Gauges {
	gauges, _ := s.driver.stats()
	return gauges
}

// Taken returns how many requests to generate have come in so far, whatever became of them.
func (s *Server) Taken() uint64 { return s.taken.Load() }

// Start serves until Stop. It returns at once.
func (s *Server) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("starting worker %s: %w", s.cfg.Served, err)
	}
	base, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop, s.started = stop, time.Now()
	s.http = &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       5 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	s.driver.start()
	if p := s.driver.publisher; p != nil {
		p.start()
	}
	go func() {
		if err := s.http.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) {
			s.log.Error("worker stopped serving", "error", err)
		}
	}()
	s.log.Info("worker serves", "addr", s.Addr().String(), "model", s.cfg.Served, "gpu", s.profile.GPU)
	return nil
}

// Stop lets answers finish until ctx is done, then cuts them. With a context that is done already it dies as a killed
// process would.
func (s *Server) Stop(ctx context.Context) error {
	s.chaos.close()
	if p := s.driver.publisher; p != nil {
		defer p.close()
	}
	if s.http == nil {
		return s.listener.Close()
	}
	if ctx.Err() != nil || s.http.Shutdown(ctx) != nil {
		s.http.Close()
	}
	s.stop()
	s.handlers.Wait()
	s.driver.close()
	return nil
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", s.generate(chat))
	mux.HandleFunc("POST /v1/completions", s.generate(completion))
	mux.HandleFunc("POST /v1/messages", s.generate(anthropic))
	mux.HandleFunc("POST /v1/embeddings", s.embeddings)
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /ping", s.health)
	mux.HandleFunc("GET /version", s.version)
	mux.HandleFunc("GET /metrics", s.serveMetrics)
	s.shelfRoutes(mux)
	mux.HandleFunc("POST /reset_prefix_cache", s.resetPrefixCache)
	mux.HandleFunc("GET /chaos", s.getChaos)
	mux.HandleFunc("POST /chaos", s.postChaos)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.handlers.Add(1)
		defer s.handlers.Done()
		if !s.admits(r) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "Unauthorized")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// admits reports whether a caller may be served: it shows one of the keys, or asks for the health page.
func (s *Server) admits(r *http.Request) bool {
	if s.cfg.Keys == nil || r.URL.Path == "/health" {
		return true
	}
	shown, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return shown != "" && slices.Contains(s.cfg.Keys(), shown)
}

// chance is a seeded source of numbers for concurrent handlers.
type chance struct {
	mu  sync.Mutex
	rng *rand.Rand
}

func (c *chance) draw() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.Float64()
}
