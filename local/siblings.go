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

	"github.com/spillway-lb/spillway/internal/httpedge/forward"
	"github.com/spillway-lb/spillway/internal/identity"
	"github.com/spillway-lb/spillway/internal/openai"
	"github.com/spillway-lb/spillway/internal/telemetry"
	"github.com/spillway-lb/spillway/internal/uplink"
	"github.com/spillway-lb/spillway/local/sched"
	"github.com/spillway-lb/spillway/local/sharding"
)

// peerSharing shares the zone's workers with its other instances.
type peerSharing struct{ *instance }

// heartbeatPath is the path at which the zone's other instances ask whether this one is alive and which workers it reaches.
const heartbeatPath = "/v1/sibling"

// sourceRegistration is the discovery source of a worker that registered itself.
const sourceRegistration = "registration"

const (
	heartbeatTicks    = 2 // multiples of sharding.AssignmentInterval
	heartbeatTimeout  = time.Second
	maxHeartbeatBytes = 1 << 20 // bytes of a peer's answer
)

// zonePeers tracks the other instances of the zone and the assignment of its workers to all of them.
type zonePeers struct {
	client         *http.Client
	membersChanged chan struct{} // a gateway reported the zone's instances

	mu         sync.Mutex
	membership *sharding.PeerTable
	asking     map[string]bool
	members    []string // instances of the assignment in force
}

// peerHeartbeat is a peer's answer to a heartbeat request.
type peerHeartbeat struct {
	Instance string `json:"instance"`
	// Version identifies the worker list. Workers is omitted when the request named the same version.
	Version uint64   `json:"version,string"`
	Workers []string `json:"workers"`
}

// checkPeer accepts the other instances of this zone.
func (h *peerSharing) checkPeer(id identity.ID) error {
	if id.Role != identity.RoleLocal || id.Region != h.cfg.Region || id.Zone != h.cfg.Zone {
		return fmt.Errorf("%s is not an instance of zone %s/%s", id, h.cfg.Region, h.cfg.Zone)
	}
	return nil
}

// guardPeerRequests limits the zone's other instances to heartbeat requests.
func (h *peerSharing) guardPeerRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch fromPeer := isFromPeer(r); {
		case fromPeer && r.Method == http.MethodGet && r.URL.Path == heartbeatPath:
			h.serveHeartbeat(w, r)
		case fromPeer:
			forward.WriteError(w, &openai.Error{
				Status: http.StatusForbidden, Type: openai.TypePermission, Code: openai.CodeNotFound, NoRetry: true,
				Message: "only gateways of the region may send requests to a zone",
			})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// isFromPeer reads the role from the certificate that the handshake verified: .../local/NAME, not .../gateway/NAME.
func isFromPeer(r *http.Request) bool {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || len(r.TLS.PeerCertificates[0].URIs) == 0 {
		return false
	}
	path := r.TLS.PeerCertificates[0].URIs[0].Path
	return strings.HasSuffix(path[:max(strings.LastIndexByte(path, '/'), 0)], "/local")
}

// serveHeartbeat answers a heartbeat request of a peer.
func (h *peerSharing) serveHeartbeat(w http.ResponseWriter, r *http.Request) {
	s := peerHeartbeat{Instance: h.cfg.Name, Workers: h.scheduler.reachedWorkers()}
	s.Version = sharding.ComputeListVersion(s.Workers)
	if r.URL.Query().Get("have") == strconv.FormatUint(s.Version, 10) {
		s.Workers = nil
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(&s) // a peer that has disconnected asks again
}

// updateMembers records a gateway's report of the zone's instances. It wakes runAssignment: the report may differ even if the
// rest of the directive does not.
func (s *zonePeers) updateMembers(parent identity.ID, d *uplink.Directive) {
	s.mu.Lock()
	s.membership.ApplyGatewayReport(parent.Name, readMembers(d), time.Now())
	s.mu.Unlock()
	select {
	case s.membersChanged <- struct{}{}:
	default:
	}
}

// restoreMembers loads the persisted instances of an earlier run. They hold until a gateway reports the present ones.
func (s *zonePeers) restoreMembers(d *uplink.Directive) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.membership.RestoreMembers(readMembers(d), time.Now())
}

func readMembers(d *uplink.Directive) []sharding.ZoneInstance {
	var out []sharding.ZoneInstance
	for _, l := range d.ZoneInstances {
		out = append(out, sharding.ZoneInstance{Name: l.Name, Endpoint: l.Endpoint})
	}
	return out
}

// runAssignment keeps the zone's workers assigned to its live instances, until the agent stops.
func (h *peerSharing) runAssignment() {
	defer h.peers.client.CloseIdleConnections()
	tick := time.NewTicker(sharding.AssignmentInterval)
	defer tick.Stop()
	for n := 0; ; n++ {
		if n%heartbeatTicks == 0 {
			h.askPeers()
		}
		h.noteLiveGateways()
		h.updateAssignment(time.Now())
		select {
		case <-h.ctx.Done():
			return
		case <-tick.C:
		case <-h.peers.membersChanged:
		}
	}
}

// noteLiveGateways records which gateways are still connected.
func (h *peerSharing) noteLiveGateways() {
	sessions := h.uplink.Sessions()
	h.peers.mu.Lock()
	defer h.peers.mu.Unlock()
	for i := range sessions {
		if x := &sessions[i]; x.Connected {
			h.peers.membership.RecordGatewayAlive(x.Parent.Name, x.ConfirmedAt)
		}
	}
}

// askPeers sends a heartbeat request to each peer without one under way.
func (h *peerSharing) askPeers() {
	s := h.peers
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.membership.KnownPeers() {
		if m.Endpoint == "" || s.asking[m.Name] {
			continue
		}
		s.asking[m.Name] = true
		have := s.membership.PeerVersion(m.Name)
		h.wg.Go(func() {
			seen, err := s.askPeer(h.ctx, m, have)
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.asking, m.Name)
			if err == nil {
				s.membership.RecordPeerAnswer(m.Name, seen.Version, seen.Workers, time.Now())
			}
		})
	}
}

// askPeer sends a heartbeat request to one peer.
func (s *zonePeers) askPeer(ctx context.Context, m sharding.ZoneInstance, have uint64) (*peerHeartbeat, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+m.Endpoint+heartbeatPath+"?have="+strconv.FormatUint(have, 10), nil)
	if err != nil {
		return nil, fmt.Errorf("heartbeat to peer %s: %w", m.Name, err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("heartbeat to peer %s: %w", m.Name, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("heartbeat to peer %s: status %d", m.Name, resp.StatusCode)
	}
	id, err := identity.PeerID(*resp.TLS)
	if err == nil && id.Name != m.Name {
		err = fmt.Errorf("%s answered instead", id)
	}
	if err != nil {
		return nil, fmt.Errorf("heartbeat to peer %s: %w", m.Name, err)
	}
	return decodeHeartbeat(resp.Body)
}

// decodeHeartbeat decodes a peer's answer.
func decodeHeartbeat(r io.Reader) (*peerHeartbeat, error) {
	var seen peerHeartbeat
	if err := json.NewDecoder(io.LimitReader(r, maxHeartbeatBytes)).Decode(&seen); err != nil {
		return nil, fmt.Errorf("reading a peer's heartbeat: %w", err)
	}
	if len(seen.Workers) > sharding.MaxWorkers {
		return nil, fmt.Errorf("a peer lists %d workers, more than the limit of %d per zone", len(seen.Workers), sharding.MaxWorkers)
	}
	return &seen, nil
}

// updateAssignment computes the assignment of workers to instances and applies it.
func (h *peerSharing) updateAssignment(now time.Time) {
	s := h.peers
	s.mu.Lock()
	d := s.membership.AssignWorkers(now)
	members := d.Members()
	before := s.members
	s.members = members
	s.mu.Unlock()
	var gained, lost int
	h.scheduler.update(func(s *sched.Scheduler) { gained, lost = s.ApplyAssignment(&d, h.isRegisteredHere, now) })
	if gained+lost == 0 && slices.Equal(before, members) {
		return
	}
	h.log.Info("the zone's workers were reassigned", "instances", members, "gained", gained, "given_up", lost, telemetry.KeyZone, h.cfg.Zone)
	h.signalChange()
}

// isRegisteredHere reports whether a worker registered itself at this instance; other instances need not know it.
func (h *peerSharing) isRegisteredHere(worker string) bool {
	return h.discovery.SourceOf(worker) == sourceRegistration
}

// countOwnedWorkers returns the number of instances that share the zone's workers, and how many workers this instance owns.
func (h *peerSharing) countOwnedWorkers() (instances, owned int) {
	h.peers.mu.Lock()
	instances = max(len(h.peers.members), 1)
	h.peers.mu.Unlock()
	h.scheduler.update(func(s *sched.Scheduler) { owned = s.CountOwned() })
	return instances, owned
}
