package fault

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync/atomic"

	"github.com/spillway-lb/spillway/chaos/fleet"
)

// relay carries the links of a fleet and holds the leases of their faults.
type relay struct {
	files *fleet.Files
	log   *slog.Logger
	place *place
	links map[string]*relayLink // by name

	listeners []*tcpListener
	datagrams []*datagramLink
	lateness  latenessMeter
	stopped   atomic.Bool
}

// faultDir is where the relay and the agent keep their leases, locks and sockets' names.
func faultDir(p *fleet.Files) string { return filepath.Join(p.Dir, "fault") }

// openRelay listens for all links and restores the leases of an earlier process.
func openRelay(ctx context.Context, p *fleet.Files, log *slog.Logger) (*relay, error) {
	if len(p.Links()) == 0 {
		return nil, fmt.Errorf("the fleet in %s has no relays: start it with --relays", p.Dir)
	}
	r := &relay{files: p, log: log, links: map[string]*relayLink{}}
	groups, up := map[netip.AddrPort]*tcpListener{}, &listenTable{}
	for i, k := range p.Links() {
		l := &relayLink{Link: k, forward: newDirection(k.RTT/2, uint64(2*i)), back: newDirection(k.RTT-k.RTT/2, uint64(2*i+1)), lateness: &r.lateness, conns: map[*relayConn]bool{}}
		r.links[k.Name] = l
		if k.Datagrams {
			d, err := openDatagramLink(l)
			if err != nil {
				return nil, errors.Join(err, r.stop(ctx))
			}
			r.datagrams = append(r.datagrams, d)
			continue
		}
		g := groups[k.Listen]
		if g == nil {
			g = newTCPListener(p, k.Listen, k.Forward, up, log)
			groups[k.Listen] = g
			r.listeners = append(r.listeners, g)
		}
		g.links = append(g.links, l)
	}
	inj := &linkInjury{relay: r}
	var err error
	r.place, err = openPlace(ctx, "relay", leaseFile(filepath.Join(faultDir(p), "relay.json")), func(k Kind) injury {
		if isLinkKind(k) {
			return inj
		}
		return nil
	}, log)
	if err != nil {
		return nil, errors.Join(err, r.stop(ctx))
	}
	for _, g := range r.listeners {
		go g.run()
	}
	for _, d := range r.datagrams {
		d.start()
	}
	return r, nil
}

func isLinkKind(k Kind) bool {
	switch k {
	case LinkDelay, LinkJitter, LinkLoss, LinkDuplicate, LinkReorder, LinkRate, LinkPartition, LinkReset, LinkBlackhole, LinkHalfOpen, Partition:
		return true
	}
	return false
}

// run serves until ctx is done.
func (r *relay) run(ctx context.Context, socket string) error {
	control, err := serveControl(socket, r.place, map[string]http.HandlerFunc{"GET /lateness": func(w http.ResponseWriter, _ *http.Request) {
		answerCall(w, r.lateness.readLateness(), nil)
	}})
	if err != nil {
		return errors.Join(err, r.stop(ctx))
	}
	r.place.run(ctx)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTimeout)
	defer cancel()
	return errors.Join(control.stop(stop), r.stop(stop))
}

func (r *relay) stop(ctx context.Context) error {
	r.stopped.Store(true)
	var err error
	if r.place != nil {
		err = r.place.close(ctx)
	}
	for _, g := range r.listeners {
		g.close()
	}
	for _, d := range r.datagrams {
		d.close()
	}
	for _, l := range r.links {
		l.resetConns(func(*relayConn) bool { return true })
	}
	return err
}
