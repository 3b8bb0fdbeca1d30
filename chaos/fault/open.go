package fault

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// places is the Injector of a local fleet: it sends each fault to the place that holds its lease.
type places struct {
	relay, agent *placeClient
}

// Open returns the Injector of a local fleet of processes (fleet.WriteFiles with Layout.Relays, then fleet.SpawnAll). It
// starts nothing: the relay and the agent are processes of the fleet.
func Open(fleetDir string) (Injector, error) {
	p, err := fleet.ReadFiles(fleetDir)
	if err != nil {
		return nil, err
	}
	if !p.Layout.Relays {
		return nil, fmt.Errorf("the fleet in %s has no relays and no fault agent: start it with `spillway demo --processes --relays --dir DIR`", p.Dir)
	}
	return &places{relay: newPlaceClient(RelayRole, controlSocket(p, RelayRole)), agent: newPlaceClient(AgentRole, controlSocket(p, AgentRole))}, nil
}

// ReadLateness returns how late the relay of a fleet delivered by itself since the last call. On a machine that is too
// busy the figures of a drill are void.
func ReadLateness(ctx context.Context, fleetDir string) (Lateness, error) {
	p, err := fleet.ReadFiles(fleetDir)
	if err != nil {
		return Lateness{}, err
	}
	var out Lateness
	err = newPlaceClient(RelayRole, controlSocket(p, RelayRole)).call(ctx, "GET", "/lateness", nil, &out)
	return out, err
}

// placeOf returns the place of a kind.
func (p *places) placeOf(k Kind) *placeClient {
	if isLinkKind(k) {
		return p.relay
	}
	return p.agent
}

func (p *places) Inject(ctx context.Context, s Spec) error {
	if err := CheckSpec(s); err != nil {
		return err
	}
	at := p.placeOf(s.Kind)
	for _, other := range []*placeClient{p.relay, p.agent} {
		if other == at {
			continue
		}
		state, err := other.verifyLease(ctx, "/state/", s.ID)
		if err != nil {
			return err
		}
		if state.Phase == PhaseActive {
			return fmt.Errorf("fault %s is active as %s: use another id", s.ID, state.Spec.Kind)
		}
	}
	return at.call(ctx, "POST", "/inject", s, nil)
}

func (p *places) Renew(ctx context.Context, id string) error {
	at, err := p.findPlace(ctx, id)
	if err != nil {
		return err
	}
	if at == nil {
		return fmt.Errorf("no fault %s is known: it was never injected, or ended more than an hour ago", id)
	}
	return at.call(ctx, "POST", "/renew/"+id, nil, nil)
}

// Clear asks every place, so that it needs to know nothing: an unknown id is cleared.
func (p *places) Clear(ctx context.Context, id string) error {
	if !isID(id) {
		return nil
	}
	return errors.Join(p.relay.call(ctx, "POST", "/clear/"+id, nil, nil), p.agent.call(ctx, "POST", "/clear/"+id, nil, nil))
}

func (p *places) Verify(ctx context.Context, id string) (State, error) {
	at, err := p.findPlace(ctx, id)
	if err != nil || at == nil {
		return State{Spec: Spec{ID: id}, Phase: PhaseUnknown}, err
	}
	return at.verifyLease(ctx, "/verify/", id)
}

func (p *places) List(ctx context.Context) ([]State, error) {
	var all []State
	for _, at := range []*placeClient{p.relay, p.agent} {
		var some []State
		if err := at.call(ctx, "GET", "/faults", nil, &some); err != nil {
			return all, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// findPlace returns the place that knows an id, nil if none does.
func (p *places) findPlace(ctx context.Context, id string) (*placeClient, error) {
	if !isID(id) {
		return nil, nil
	}
	var known *placeClient
	for _, at := range []*placeClient{p.relay, p.agent} {
		s, err := at.verifyLease(ctx, "/state/", id)
		switch {
		case err != nil:
			return nil, err
		case s.Phase == PhaseActive:
			return at, nil
		case s.Phase != PhaseUnknown:
			known = at
		}
	}
	return known, nil
}

func (c *placeClient) verifyLease(ctx context.Context, path, id string) (State, error) {
	var s State
	err := c.call(ctx, "GET", path+id, nil, &s)
	return s, err
}
