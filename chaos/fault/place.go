package fault

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// injury is one way to injure what a place holds. Its methods are called one at a time for a place.
type injury interface {
	// findVictims resolves a target, or says what it could have been.
	findVictims(Spec) ([]string, error)
	// apply puts a lease in force. It is called again for a lease that a new process has taken over.
	apply(context.Context, *lease) error
	// clear takes it out of force. The lease is marked as ended. It may be called several times, also when apply failed or
	// never ran.
	clear(context.Context, *lease) error
	// probe observes whether the fault is in force; for an ended lease, whether any trace is left.
	probe(context.Context, *lease) (inForce bool, evidence string, err error)
}

// clearRetry is the time between two attempts to clear an ended lease.
const clearRetry = 500 * time.Millisecond

// place holds the leases of what it can injure, and clears each when it ends.
type place struct {
	name     string
	file     leaseFile // empty: not stored
	injuries func(Kind) injury
	log      *slog.Logger
	// excludes returns the group of kinds of which a victim has at most one fault at a time, "" for none; nil: no kind has
	// one.
	excludes func(Kind) string

	mu     sync.Mutex
	table  *leaseTable
	wake   chan struct{} // the next expiry changed
	closed bool
}

// openPlace reads the stored leases, clears those that have ended and applies the others again.
func openPlace(ctx context.Context, name string, file leaseFile, injuries func(Kind) injury, log *slog.Logger) (*place, error) {
	p := &place{name: name, file: file, injuries: injuries, log: log, table: &leaseTable{leases: map[string]*lease{}}, wake: make(chan struct{}, 1)}
	if file == "" {
		return p, nil
	}
	var err error
	if p.table, err = file.readTable(); err != nil {
		return nil, err
	}
	now := time.Now()
	p.table.boundRestored(now)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clearDue(ctx, now)
	for _, l := range p.table.activeLeases() {
		if err := p.applyLease(ctx, l); err != nil {
			p.log.Error("a fault of an earlier process is cleared because it cannot be applied again", "id", l.Spec.ID, "error", err)
			l.Ended = true
		}
	}
	p.clearDue(ctx, now)
	return p, p.storeTable()
}

// run clears leases when they end, until ctx is done.
func (p *place) run(ctx context.Context) {
	for {
		timer := time.NewTimer(p.untilNextDuty(time.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-p.wake:
			timer.Stop()
		case <-timer.C:
			p.mu.Lock()
			p.clearDue(ctx, time.Now())
			p.mu.Unlock()
		}
	}
}

// untilNextDuty returns how long run has nothing to do.
func (p *place) untilNextDuty(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.table.leases {
		if l.Ended && !l.Cleared {
			return clearRetry
		}
	}
	at, ok := p.table.nextExpiry()
	if !ok {
		return time.Hour
	}
	return max(at.Sub(now), 0)
}

// clearDue clears the leases that have ended. The lock must be held.
func (p *place) clearDue(ctx context.Context, now time.Time) {
	due := p.table.endExpired(now)
	for _, l := range due {
		p.clearLease(ctx, l)
	}
	if len(due) > 0 {
		p.table.forgetOld(now)
		if err := p.storeTable(); err != nil {
			p.log.Error("storing the leases", "error", err)
		}
	}
}

// clearTimeout bounds one attempt to clear or apply a fault.
const clearTimeout = 10 * time.Second

func (p *place) clearLease(ctx context.Context, l *lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTimeout)
	defer cancel()
	l.Note = ""
	in := p.injuries(l.Spec.Kind)
	if in == nil {
		l.Cleared, l.Note = true, "this place has no such fault"
		return
	}
	if err := in.clear(ctx, l); err != nil {
		l.Note = err.Error()
		p.log.Error("a fault is not cleared, trying again", "id", l.Spec.ID, "kind", string(l.Spec.Kind), "error", err)
		return
	}
	l.Cleared = true
	p.log.Info("fault cleared", "id", l.Spec.ID, "kind", string(l.Spec.Kind))
}

func (p *place) applyLease(ctx context.Context, l *lease) error {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	in := p.injuries(l.Spec.Kind)
	if in == nil {
		return fmt.Errorf("%s has no fault %s", p.name, l.Spec.Kind)
	}
	return in.apply(ctx, l)
}

func (p *place) storeTable() error {
	if p.file == "" {
		return nil
	}
	return p.file.writeTable(p.table)
}

func (p *place) wakeRun() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// inject stores a lease and then puts it in force, so that a process killed in between leaves a record to clear.
func (p *place) inject(ctx context.Context, s Spec) error {
	if err := CheckSpec(s); err != nil {
		return err
	}
	in := p.injuries(s.Kind)
	if in == nil {
		return fmt.Errorf("%s has no fault %s", p.name, s.Kind)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.wakeRun()
	if p.closed {
		return fmt.Errorf("%s is stopping", p.name)
	}
	victims, err := in.findVictims(s)
	if err != nil {
		return err
	}
	if err := p.checkExclusive(s, victims); err != nil {
		return err
	}
	l, renewed, err := p.table.addLease(s, victims, time.Now())
	if err != nil {
		return err
	}
	if err := p.storeTable(); err != nil {
		if !renewed {
			delete(p.table.leases, s.ID)
		}
		return fmt.Errorf("storing the lease: %w", err)
	}
	if err := p.applyLease(ctx, l); err != nil {
		l.Ended = true
		p.clearLease(ctx, l)
		if l.Cleared {
			delete(p.table.leases, s.ID)
		}
		return errors.Join(fmt.Errorf("injecting %s: %w", s.Kind, err), p.storeTable())
	}
	p.log.Warn("fault injected", "id", s.ID, "kind", string(s.Kind), "victims", l.Victims, "lease", s.Lease)
	return nil
}

// checkExclusive refuses a second fault of a group for one victim. The lock must be held.
func (p *place) checkExclusive(s Spec, victims []string) error {
	if p.excludes == nil || p.excludes(s.Kind) == "" {
		return nil
	}
	for _, l := range p.table.activeLeases() {
		if l.Spec.ID == s.ID || p.excludes(l.Spec.Kind) != p.excludes(s.Kind) {
			continue
		}
		for _, v := range victims {
			if slices.Contains(l.Victims, v) {
				return fmt.Errorf("%s has the fault %s (%s): a %s has one fault at a time, clear that one first", v, l.Spec.ID, l.Spec.Kind, p.excludes(s.Kind))
			}
		}
	}
	return nil
}

func (p *place) renew(ctx context.Context, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.wakeRun()
	if err := p.table.renewLease(id, time.Now()); err != nil {
		return err
	}
	if err := p.storeTable(); err != nil {
		return fmt.Errorf("storing the lease: %w", err)
	}
	return p.applyLease(ctx, p.table.leases[id])
}

func (p *place) clear(ctx context.Context, id string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.wakeRun()
	l := p.table.leases[id]
	if l == nil || l.Cleared {
		return nil
	}
	if !l.Ended {
		l.Ended, l.Until = true, time.Now()
	}
	p.clearLease(ctx, l)
	if err := p.storeTable(); err != nil {
		return fmt.Errorf("storing the lease: %w", err)
	}
	if !l.Cleared {
		return fmt.Errorf("clearing %s %s: %s", l.Spec.Kind, id, l.Note)
	}
	return nil
}

// verify probes a fault. A place that does not know it returns PhaseUnknown.
func (p *place) verify(ctx context.Context, id string) (State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.table.leases[id]
	if l == nil {
		return State{Spec: Spec{ID: id}, Phase: PhaseUnknown, Place: p.name}, nil
	}
	s := p.describeLease(l)
	if l.Ended && !l.Cleared {
		s.Phase, s.Probe = PhaseUncleared, l.Note
		return s, nil
	}
	in := p.injuries(l.Spec.Kind)
	if in == nil {
		return s, fmt.Errorf("%s has no fault %s", p.name, l.Spec.Kind)
	}
	inForce, evidence, err := in.probe(ctx, l)
	if err != nil {
		return s, fmt.Errorf("probing %s %s: %w", l.Spec.Kind, id, err)
	}
	s.Probe = evidence
	switch {
	case l.Ended && inForce:
		s.Phase = PhaseUncleared
	case l.Ended:
		s.Phase = PhaseCleared
	case inForce:
		s.Phase = PhaseActive
	default:
		s.Phase = PhaseIneffective
	}
	return s, nil
}

func (p *place) describeLease(l *lease) State {
	s := State{Spec: l.Spec, Phase: PhaseActive, Place: p.name, Victims: l.Victims, Since: l.Since, Until: l.Until}
	if l.Ended {
		s.Phase = PhaseCleared
	}
	return s
}

// describeID returns a fault without a probe.
func (p *place) describeID(id string) State {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.table.leases[id]; l != nil {
		return p.describeLease(l)
	}
	return State{Spec: Spec{ID: id}, Phase: PhaseUnknown, Place: p.name}
}

func (p *place) list() (out []State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.table.activeLeases() {
		out = append(out, p.describeLease(l))
	}
	return out
}

// close clears everything and refuses further faults. Leases that cannot be cleared stay stored.
func (p *place) close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	var errs []error
	for _, l := range p.table.activeLeases() {
		l.Ended, l.Until = true, time.Now()
	}
	for _, l := range p.table.endExpired(time.Now()) {
		p.clearLease(ctx, l)
		if !l.Cleared {
			errs = append(errs, fmt.Errorf("clearing %s %s: %s", l.Spec.Kind, l.Spec.ID, l.Note))
		}
	}
	return errors.Join(append(errs, p.storeTable())...)
}
