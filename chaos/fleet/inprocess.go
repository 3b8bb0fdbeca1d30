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

// Runner is a started or startable node of any tier.
type Runner interface {
	Start(context.Context) error
	Stop(context.Context) error
}

// OpenNode builds a node from its config file without starting it, like the commands of the binary.
type OpenNode func(path string, log *slog.Logger) (Runner, error)

// stopTimeout bounds the stop of one node.
const stopTimeout = 10 * time.Second

// InProcess is a fleet of nodes in this process, on loopback.
type InProcess struct {
	files *Files
	open  OpenNode
	log   *slog.Logger

	mu      sync.Mutex
	runners map[string]Runner // by node ID
}

// RunInProcess starts every node of a fleet in this process. All of them listen before the first one starts, so that
// none waits to reconnect.
func RunInProcess(ctx context.Context, p *Files, open OpenNode, log *slog.Logger) (*InProcess, error) {
	r := &InProcess{files: p, open: open, log: log, runners: map[string]Runner{}}
	for _, n := range p.Nodes {
		if err := r.buildNode(n); err != nil {
			return nil, errors.Join(err, r.Stop(ctx))
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, n := range p.Nodes {
		g.Go(func() error {
			if err := r.runners[n.ID()].Start(ctx); err != nil {
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

func (r *InProcess) buildNode(n Node) error {
	role, err := r.open(r.files.ConfigPath(n), r.log.With("node", n.ID()))
	if err != nil {
		return fmt.Errorf("building %s %s: %w", n.Role, n.ID(), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runners[n.ID()] = role
	return nil
}

// NodeByID is a running node, or nil when it was stopped.
func (r *InProcess) NodeByID(id string) Runner {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.runners[id]
}

// StopNode stops one node and removes it.
func (r *InProcess) StopNode(ctx context.Context, id string) error {
	r.mu.Lock()
	role := r.runners[id]
	delete(r.runners, id)
	r.mu.Unlock()
	if role == nil {
		return fmt.Errorf("no node %q is running", id)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	return role.Stop(ctx)
}

// Stop stops every node, those that take requests first, each tier concurrently.
func (r *InProcess) Stop(ctx context.Context) error {
	var errs []error
	for _, role := range []string{"global", "regional", "local", "worker"} {
		errs = append(errs, r.stopTier(ctx, role))
	}
	return errors.Join(errs...)
}

func (r *InProcess) stopTier(ctx context.Context, role string) error {
	var g errgroup.Group
	for _, n := range r.files.NodesByRole(role) {
		if r.NodeByID(n.ID()) == nil {
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
