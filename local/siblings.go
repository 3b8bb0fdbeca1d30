package local

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/relay"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local/owner"
)

// pathSibling is where the zone's other instances ask whether this one is there, and which workers it has reached.
const pathSibling = "/v1/sibling"

// fromRegistration is the source of a worker that signed itself in.
const fromRegistration = "registration"

const (
	divideEvery  = 250 * time.Millisecond
	visitEvery   = 2 // times divideEvery
	visitTimeout = time.Second
	maxSighting  = 1 << 20 // bytes of a sibling's answer
)

// siblings are the other instances of the zone, and how its workers are divided among all of them.
type siblings struct {
	client *http.Client
	kick   chan struct{} // a gateway has said something

	mu       sync.Mutex
	zone     *owner.Zone
	visiting map[string]bool
	members  []string // of the division in force
}

// sighting is a sibling's answer.
type sighting struct {
	Instance string `json:"instance"`
	// Version is that of the list; a list of the version that was asked with is left out.
	Version uint64   `json:"version,string"`
	Workers []string `json:"workers"`
}

func (a *Agent) newSiblings() *siblings {
	s := &siblings{zone: owner.New(a.cfg.Name), kick: make(chan struct{}, 1), visiting: map[string]bool{}}
	if a.cfg.Certs != nil {
		t := relay.NewTransport(a.cfg.Certs.Client(relay.ALPN, a.isSibling))
		if a.cfg.Network != nil {
			t.DialContext = a.cfg.Network.DialContext
		}
		s.client = &http.Client{Transport: t, Timeout: visitTimeout}
	}
	return s
}

// isSibling admits the other instances of this zone.
func (a *Agent) isSibling(id identity.ID) error {
	if id.Role != identity.RoleLocal || id.Region != a.cfg.Region || id.Zone != a.cfg.Zone {
		return fmt.Errorf("%s is no instance of zone %s/%s", id, a.cfg.Region, a.cfg.Zone)
	}
	return nil
}

// callers admits who may ask anything here: gateways of the region, and the zone's other instances, for whom door leaves
// one question.
func (a *Agent) callers(id identity.ID) error {
	if a.isSibling(id) == nil {
		return nil
	}
	return a.gatewaysOnly(id)
}

// gate lets siblings ask whether this instance is there, and nothing else.
func (a *Agent) gate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch sibling := fromSibling(r); {
		case sibling && r.Method == http.MethodGet && r.URL.Path == pathSibling:
			a.showSelf(w, r)
		case sibling:
			relay.WriteError(w, &openai.Error{
				Status: http.StatusForbidden, Type: openai.TypePermission, Code: openai.CodeNotFound, NoRetry: true,
				Message: "only gateways of the region may send requests to a zone",
			})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// fromSibling reads the role from the certificate that the handshake has judged: .../local/NAME and not .../gateway/NAME.
func fromSibling(r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || len(r.TLS.PeerCertificates[0].URIs) == 0 {
		return false
	}
	path := r.TLS.PeerCertificates[0].URIs[0].Path
	return strings.HasSuffix(path[:max(strings.LastIndexByte(path, '/'), 0)], "/local")
}

// showSelf answers a sibling.
func (a *Agent) showSelf(w http.ResponseWriter, r *http.Request) {
	s := sighting{Instance: a.cfg.Name, Workers: a.floor.reached()}
	s.Version = versionOf(s.Workers)
	if r.URL.Query().Get("have") == strconv.FormatUint(s.Version, 10) {
		s.Workers = nil
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&s) // a sibling that has left asks again
}

// versionOf numbers a list of workers; it is never 0.
func versionOf(workers []string) uint64 {
	return max(1, xxhash.Sum64String(strings.Join(workers, "\n")))
}

// reached lists the workers that have answered a probe, in order. It is not nil.
func (f *floor) reached() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []string{}
	for name, w := range f.workers {
		if !w.reading.At.IsZero() {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// told takes what a gateway says of the zone's instances. It may be news although nothing else is.
func (s *siblings) told(parent identity.ID, d *uplink.Directive) {
	s.mu.Lock()
	s.zone.Told(parent.Name, membersOf(d), time.Now())
	s.mu.Unlock()
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// remember takes the instances of an earlier life, until a gateway speaks of those of now.
func (s *siblings) remember(d *uplink.Directive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zone.Remember(membersOf(d), time.Now())
}

func membersOf(d *uplink.Directive) []owner.Member {
	var out []owner.Member
	for _, l := range d.Locals {
		out = append(out, owner.Member{Name: l.Name, Endpoint: l.Endpoint})
	}
	return out
}

// divide keeps the zone's workers divided among its live instances, until the agent stops.
func (a *Agent) divide() {
	defer a.kin.client.CloseIdleConnections()
	tick := time.NewTicker(divideEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		if n%visitEvery == 0 {
			a.visitSiblings()
		}
		a.listenForGateways()
		a.redivide(time.Now())
		select {
		case <-a.ctx.Done():
			return
		case <-tick.C:
		case <-a.kin.kick:
		}
	}
}

// listenForGateways notes which of them are still there.
func (a *Agent) listenForGateways() {
	sessions := a.uplink.Sessions()
	a.kin.mu.Lock()
	defer a.kin.mu.Unlock()
	for i := range sessions {
		if x := &sessions[i]; x.Connected {
			a.kin.zone.Heard(x.Parent.Name, x.Heard)
		}
	}
}

// visitSiblings asks each of the others that is not being asked.
func (a *Agent) visitSiblings() {
	s := a.kin
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.zone.Siblings() {
		if m.Endpoint == "" || s.visiting[m.Name] {
			continue
		}
		s.visiting[m.Name] = true
		have := s.zone.Version(m.Name)
		a.wg.Go(func() {
			seen, err := s.visit(a.ctx, m, have)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.visiting, m.Name)
			if err == nil {
				s.zone.Met(m.Name, seen.Version, seen.Workers, time.Now())
			}
		})
	}
}

// visit asks one sibling.
func (s *siblings) visit(ctx context.Context, m owner.Member, have uint64) (*sighting, error) {
	ctx, cancel := context.WithTimeout(ctx, visitTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+m.Endpoint+pathSibling+"?have="+strconv.FormatUint(have, 10), nil)
	if err != nil {
		return nil, fmt.Errorf("asking sibling %s: %w", m.Name, err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking sibling %s: %w", m.Name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking sibling %s: status %d", m.Name, resp.StatusCode)
	}
	id, err := identity.PeerID(*resp.TLS)
	if err == nil && id.Name != m.Name {
		err = fmt.Errorf("%s answers in its place", id)
	}
	if err != nil {
		return nil, fmt.Errorf("asking sibling %s: %w", m.Name, err)
	}
	return readSighting(resp.Body)
}

// readSighting decodes a sibling's answer.
func readSighting(r io.Reader) (*sighting, error) {
	var seen sighting
	if err := json.NewDecoder(io.LimitReader(r, maxSighting)).Decode(&seen); err != nil {
		return nil, fmt.Errorf("reading a sibling's answer: %w", err)
	}
	if len(seen.Workers) > owner.MaxWorkers {
		return nil, fmt.Errorf("a sibling knows %d workers, more than the %d of a zone", len(seen.Workers), owner.MaxWorkers)
	}
	return &seen, nil
}

// redivide puts the division of now in force.
func (a *Agent) redivide(now time.Time) {
	s := a.kin
	s.mu.Lock()
	d := s.zone.Divide(now)
	members := d.Members()
	before := s.members
	s.members = members
	s.mu.Unlock()
	gained, lost := a.floor.divide(&d, a.cameToUs, now)
	if gained+lost == 0 && slices.Equal(before, members) {
		return
	}
	a.log.Info("the zone's workers are divided anew", "instances", members, "gained", gained, "given_up", lost, telemetry.KeyZone, a.cfg.Zone)
	a.wake()
}

// cameToUs says that a worker signed itself in here: no other instance need know it.
func (a *Agent) cameToUs(worker string) bool { return a.watch.Source(worker) == fromRegistration }

// share is how many instances divide the zone's workers, and how many of those are ours.
func (a *Agent) share() (instances, owned int) {
	a.kin.mu.Lock()
	instances = max(len(a.kin.members), 1)
	a.kin.mu.Unlock()
	f := a.floor
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.workers {
		if w.elsewhere == "" {
			owned++
		}
	}
	return instances, owned
}
