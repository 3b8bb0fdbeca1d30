package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Role is a started or startable node of any tier.
type Role interface {
	Start(context.Context) error
	Stop(context.Context) error
}

// Open builds a node from its config file without starting it. The binary's own verbs are such functions.
type Open func(path string, log *slog.Logger) (Role, error)

// stopTimeout bounds the stop of one node.
const stopTimeout = 10 * time.Second

// Running is a planet in this process.
type Running struct {
	planet *Planet
	open   Open
	log    *slog.Logger

	mu    sync.Mutex
	roles map[string]Role // by node ID
}

// Run starts every node of a planet in this process. All of them listen before the first one starts, so that nobody
// waits to reconnect.
func Run(ctx context.Context, p *Planet, open Open, log *slog.Logger) (*Running, error) {
	r := &Running{planet: p, open: open, log: log, roles: map[string]Role{}}
	for _, n := range p.Nodes {
		if err := r.build(n); err != nil {
			return nil, errors.Join(err, r.Stop(ctx))
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, n := range p.Nodes {
		g.Go(func() error {
			if err := r.roles[n.ID()].Start(ctx); err != nil {
				return fmt.Errorf("starting %s %s: %w", n.Role, n.ID(), err)
			}
			return gctx.Err()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, errors.Join(err, r.Stop(context.WithoutCancel(ctx)))
	}
	return r, nil
}

func (r *Running) build(n Node) error {
	role, err := r.open(r.planet.Config(n), r.log.With("node", n.ID()))
	if err != nil {
		return fmt.Errorf("building %s %s: %w", n.Role, n.ID(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.roles[n.ID()] = role
	return nil
}

// Role is a running node, or nil when it was stopped.
func (r *Running) Role(id string) Role {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.roles[id]
}

// StopNode stops one node and forgets it.
func (r *Running) StopNode(ctx context.Context, id string) error {
	r.mu.Lock()
	role := r.roles[id]
	delete(r.roles, id)
	r.mu.Unlock()
	if role == nil {
		return fmt.Errorf("no node %q is running", id)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return role.Stop(ctx)
}

// Stop stops every node, those that take requests first, each tier at once.
func (r *Running) Stop(ctx context.Context) error {
	var errs []error
	for _, role := range []string{"global", "regional", "local", "worker"} {
		errs = append(errs, r.stopTier(ctx, role))
	}
	return errors.Join(errs...)
}

func (r *Running) stopTier(ctx context.Context, role string) error {
	var g errgroup.Group
	for _, n := range r.planet.Of(role) {
		if r.Role(n.ID()) == nil {
			continue
		}
		g.Go(func() error {
			if err := r.StopNode(ctx, n.ID()); err != nil {
				return fmt.Errorf("stopping %s %s: %w", role, n.ID(), err)
			}
			return nil
		})
	}
	return g.Wait()
}
