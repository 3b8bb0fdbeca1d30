package consensus

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

const (
	rpcTimeout = 10 * time.Second
	poolSize   = 3
	// noPipelining makes raft wait for each answer before it sends the next entries. Its pipeline locks up when a
	// follower refuses entries while more are being sent: that follower then gets heartbeats and never an entry
	// again, and the leader cannot be stopped (hashicorp/raft#612). A round trip carries 64 entries, many times the
	// write rate of Spillway.
	noPipelining = 1
)

// raftTransport is raft's network transport.
type raftTransport interface {
	raft.Transport
	Close() error
	CloseStreams()
}

// openRaft creates raft on its stores and its transport. It returns the index of the last command that raft replays.
func (n *Node) openRaft() (replayed uint64, err error) {
	self := cmp.Or(n.cfg.Advertise, peerAddr(n.cfg.Peers, n.id), n.Addr().String())
	conf, err := buildVoters(n.id, self, n.cfg.Peers)
	if err != nil {
		return 0, err
	}
	n.book.addVoters(conf.Servers)
	s, log := n.storage, n.dialer.log
	if err := s.openStores(n.cfg, log, n.ctx.Done()); err != nil {
		return 0, err
	}
	if s.file != nil {
		if err := errors.Join(verifyStorage(n.cfg.Dir, s.snaps, s.file), s.file.checkWritable()); err != nil {
			return 0, err
		}
	}
	n.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		ServerAddressProvider: addrProvider(n.book.addrs), Logger: log,
		Stream:  &raftStreams{dialer: n.dialer, accepted: n.listener.streams, advertise: self, closed: make(chan struct{})},
		MaxPool: poolSize, Timeout: rpcTimeout, MaxRPCsInFlight: noPipelining,
	})
	c := n.cfg.raftConfig(s.file != nil, log)
	if !n.cfg.Join {
		if err := bootstrapCluster(c, s.logs, s.stable, s.snaps, n.transport, conf); err != nil {
			return 0, err
		}
	}
	base, err := ensureBaseSnapshot(s.logs, s.snaps, n.transport)
	if err != nil {
		return 0, err
	}
	if s.file != nil {
		s.file.baseIndex = base
		if replayed, err = s.file.lastReplayedIndex(); err != nil {
			return 0, err
		}
	}
	n.raft.Raft, err = raft.NewRaft(c, n.fsm, s.logs, s.stable, s.snaps, n.transport)
	if err == nil && s.file != nil {
		s.file.disk.raftRunning.Store(true)
	}
	return replayed, err
}

// addrProvider lets the address of a voter change without a membership change.
type addrProvider map[string]string

// ServerAddr returns a voter's configured address; on an error raft uses the address with which the voter was added.
func (p addrProvider) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if a, ok := p[string(id)]; ok {
		return raft.ServerAddress(a), nil
	}
	return "", fmt.Errorf("no address configured for %s", id)
}

func peerAddr(peers []RaftPeer, id string) string {
	for _, p := range peers {
		if p.ID == id {
			return p.Addr
		}
	}
	return ""
}
