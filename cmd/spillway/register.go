package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/discover/registrar"
)

func newRegisterCommand() *cobra.Command {
	var (
		cfg                   registrar.Config
		health, tokenFile, ca string
	)
	cmd := &cobra.Command{
		Use:   "register --local URL --name NAME --url URL --token-file FILE",
		Short: "Register an engine with its zone and keep it registered (a sidecar)",
		Long: `Register an engine with its zone and keep it registered. Run it next to the engine, as a sidecar.

It waits until the engine's health endpoint responds, registers with every --local, renews each registration after a third
of its lease, and deregisters on SIGTERM or Ctrl-C: the engine then gets no new requests and finishes the running ones. An
unreachable or refusing local instance is retried. If this process is killed, the zone removes the engine when the lease
ends.

The local instances need registration.listen, registration.allow and the hash of the token: see
` + "`spillway config describe local registration`" + `.`,
		Example: `  spillway register --local https://10.0.1.11:7404 --local https://10.0.1.12:7404 --ca ca.pem \
      --name w1 --url http://10.0.0.7:8000 --gpu H100 --label rack=r7 --token-file worker.key`,
		GroupID: "run",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			token, err := readToken(tokenFile)
			if err != nil {
				return err
			}
			for _, l := range cfg.Locals {
				if strings.HasPrefix(l, "https:") && ca == "" {
					return fmt.Errorf("%s: write --ca FILE with the CA of the local instances' certificates", l)
				}
			}
			transport, err := newLocalTransport(ca)
			if err != nil {
				return err
			}
			defer transport.CloseIdleConnections()
			cfg.Token, cfg.Transport, cfg.Notify = token, transport, newLineWriter(cmd.OutOrStdout())
			if health != "" {
				cfg.Health = strings.TrimRight(cfg.Registration.URL, "/") + "/" + strings.TrimLeft(health, "/")
			}
			client, err := registrar.New(cfg)
			if err != nil {
				return err
			}
			client.Run(cmd.Context())
			return nil
		},
	}
	f, r := cmd.Flags(), &cfg.Registration
	f.StringSliceVar(&cfg.Locals, "local", nil, "registration URL of a local instance (registration.listen); repeat it for every instance of the zone")
	f.StringVar(&cfg.Name, "name", "", "name of the worker, unique in its zone")
	f.StringVar(&r.URL, "url", "", "URL of the engine as the local instances reach it")
	f.StringVar(&tokenFile, "token-file", "", "`FILE` with the token, the key that spillway config key prints")
	f.StringVar(&ca, "ca", "", "CA of the local instances' certificates, for https")
	f.StringVar(&health, "health", "/health", "path of the engine that returns 200 once it is ready; empty: do not wait")
	f.StringVar(&r.GPU, "gpu", "", "type and number of GPUs, such as H100 or H100x4")
	f.StringSliceVar(&r.Models, "model", nil, "served models (default: the engine is queried)")
	f.StringVar(&r.Engine, "engine", "", "type of the engine, such as vllm (default: detected)")
	f.Float64Var(&r.Weight, "weight", 1, "relative share, for policies with weights")
	f.StringVar(&r.Metrics, "metrics", "", "URL of its metrics at the same host (default: the engine's usual path)")
	f.StringVar(&r.GPUMetrics, "gpu-metrics", "", "URL of the DCGM exporter at the same host, such as http://10.0.0.7:9400/metrics")
	f.StringSliceVar(&r.KVEvents, "kv-events", nil, "endpoints of its KV cache events, tcp://host:port at the same host, one for each data-parallel rank")
	f.StringSliceVar(&r.KVReplay, "kv-replay", nil, "endpoints that resend missed events, in the order of --kv-events")
	f.StringToStringVar(&r.Labels, "label", nil, "name=value; repeat it for more")
	for _, name := range []string{"local", "name", "url", "token-file"} {
		panicOnError(cmd.MarkFlagRequired(name))
	}
	return cmd
}

func readToken(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return "", fmt.Errorf("reading the token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if strings.HasPrefix(token, "sha256:") {
		return "", fmt.Errorf("%s contains the hash of a token: write the key itself, the hash belongs in the config of the local instances", file)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("%s contains spaces or characters that are not ASCII: write only the key to it", file)
	}
	return token, nil
}

// newLocalTransport returns a transport for requests to local instances. With a CA, the server's certificate must be that of
// a local instance.
func newLocalTransport(ca string) (*http.Transport, error) {
	if ca == "" {
		return forward.NewTransport(nil), nil
	}
	tls, err := identity.ClientTLSForCA(ca, func(id identity.ID) error {
		if id.Role != identity.RoleLocal {
			return fmt.Errorf("%s is not a local instance", id)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return forward.NewTransport(tls), nil
}

// newLineWriter returns a function that writes whole lines and may be called concurrently.
func newLineWriter(w io.Writer) func(string) {
	var mu sync.Mutex
	return func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintln(w, line)
	}
}

// selfRegisteringWorker is a simulated worker that registers itself with a zone.
type selfRegisteringWorker struct {
	*gpu.Server
	client         *registrar.Registrar
	closeIdleConns func()
	cancel         context.CancelFunc
	done           chan struct{}
}

// addSelfRegistration returns the worker, with self-registration if its config requests it.
func addSelfRegistration(w *gpu.Server, c *config.SimulatedWorker, log *slog.Logger) (fleet.Runner, error) {
	if len(c.Register.Locals) == 0 {
		return w, nil
	}
	s, err := newSelfRegisteringWorker(w, c, log)
	if err != nil {
		_ = w.Stop(context.Background()) // it listens and serves nothing yet
		return nil, err
	}
	return s, nil
}

func newSelfRegisteringWorker(w *gpu.Server, c *config.SimulatedWorker, log *slog.Logger) (*selfRegisteringWorker, error) {
	token, err := readToken(c.Register.TokenFile)
	if err != nil {
		return nil, err
	}
	transport, err := newLocalTransport(c.Register.CA)
	if err != nil {
		return nil, err
	}
	at := w.Addr().String()
	if _, port, err := net.SplitHostPort(c.Listen); err == nil && port != "0" || c.Register.Advertise != "" {
		at = cmp.Or(c.Register.Advertise, c.Listen)
	}
	client, err := registrar.New(registrar.Config{
		Locals: c.Register.Locals, Name: c.Name, Token: token, Transport: transport,
		Registration: discover.Registration{URL: "http://" + at, GPU: c.GPU},
		Health:       w.URL() + "/health", Notify: func(line string) { log.Info(line) },
	})
	return &selfRegisteringWorker{Server: w, client: client, closeIdleConns: transport.CloseIdleConnections, done: make(chan struct{})}, err
}

// Start starts the worker and then registers it.
func (s *selfRegisteringWorker) Start(ctx context.Context) error {
	if err := s.Server.Start(ctx); err != nil {
		return err
	}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(s.done)
		s.client.Run(ctx)
		s.closeIdleConns()
	}()
	return nil
}

// Stop deregisters the worker first, so that no new request arrives while responses finish.
func (s *selfRegisteringWorker) Stop(ctx context.Context) error {
	if s.cancel != nil {
		s.cancel()
		<-s.done
	}
	return s.Server.Stop(ctx)
}
