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
	"github.com/spillway-lb/spillway/local/discover/enrol"
)

// signUp is a stand-in worker that registers itself.
type signUp struct {
	*gpu.Server
	client *enrol.Client
	idle   func()
	cancel context.CancelFunc
	done   chan struct{}
}

// signedUp is the worker, with what registers it where its config asks for that.
func signedUp(w *gpu.Server, c *config.Worker, log *slog.Logger) (fleet.Role, error) {
	if len(c.Register.Locals) == 0 {
		return w, nil
	}
	s, err := newSignUp(w, c, log)
	if err != nil {
		_ = w.Stop(context.Background()) // it only listens yet
		return nil, err
	}
	return s, nil
}

func newSignUp(w *gpu.Server, c *config.Worker, log *slog.Logger) (*signUp, error) {
	token, err := readToken(c.Register.TokenFile)
	if err != nil {
		return nil, err
	}
	transport, err := localTransport(c.Register.CA)
	if err != nil {
		return nil, err
	}
	at := w.Addr().String()
	if _, port, err := net.SplitHostPort(c.Listen); err == nil && port != "0" || c.Register.Advertise != "" {
		at = cmp.Or(c.Register.Advertise, c.Listen)
	}
	client, err := enrol.New(enrol.Config{
		Locals: c.Register.Locals, Name: c.Name, Token: token, Transport: transport,
		Registration: discover.Registration{URL: "http://" + at, GPU: c.GPU},
		Health:       w.URL() + "/health", Say: func(line string) { log.Info(line) },
	})
	return &signUp{Server: w, client: client, idle: transport.CloseIdleConnections, done: make(chan struct{})}, err
}

// Start serves and then signs in.
func (s *signUp) Start(ctx context.Context) error {
	if err := s.Server.Start(ctx); err != nil {
		return err
	}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(s.done)
		s.client.Run(ctx)
		s.idle()
	}()
	return nil
}

// Stop signs off first, so that nothing new comes while answers finish.
func (s *signUp) Stop(ctx context.Context) error {
	if s.cancel != nil {
		s.cancel()
		<-s.done
	}
	return s.Server.Stop(ctx)
}
