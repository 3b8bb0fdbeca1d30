package main

import (
	"cmp"
	"context"
	"log/slog"
	"net"

	"github.com/spillway-lb/spillway/chaos/fleet"
	"github.com/spillway-lb/spillway/chaos/gpu"
	"github.com/spillway-lb/spillway/internal/config"
	"github.com/spillway-lb/spillway/local/discover"
	"github.com/spillway-lb/spillway/local/discover/registrar"
)

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
