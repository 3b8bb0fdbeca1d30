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

// bootstrapCluster gives a node without any state the full list of voters. Every node has the same list and writes
// the same first entry, so the order in which they start does not matter.
func bootstrapCluster(c *raft.Config, logs raft.LogStore, stable raft.StableStore, snaps raft.SnapshotStore, t raft.Transport, voters raft.Configuration) error {
	had, err := raft.HasExistingState(logs, stable, snaps)
	if err != nil {
		return fmt.Errorf("looking for earlier state: %w", err)
	}
	if had {
		return nil
	}
	if err := raft.BootstrapCluster(c, logs, stable, snaps, t, voters); err != nil {
		return fmt.Errorf("starting a new cluster: %w", err)
	}
	return nil
}

// ensureBaseSnapshot makes sure that a snapshot exists and returns the index of the newest. Without a snapshot, raft
// reads its voters only from the part of the log that it does not replay, and could start without any. The first
// entry of a bootstrapped log is the list of voters, the same on all nodes, so an empty state at index 1 is correct
// on each of them.
func ensureBaseSnapshot(logs raft.LogStore, snaps raft.SnapshotStore, t raft.Transport) (uint64, error) {
	list, err := snaps.List()
	if err != nil {
		return 0, fmt.Errorf("listing snapshots: %w", err)
	}
	if len(list) > 0 {
		return list[0].Index, nil
	}
	var first raft.Log
	if err := logs.GetLog(1, &first); errors.Is(err, raft.ErrLogNotFound) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("reading first entry: %w", err)
	}
	if first.Type != raft.LogConfiguration {
		return 0, nil
	}
	sink, err := snaps.Create(raft.SnapshotVersionMax, 1, first.Term, raft.DecodeConfiguration(first.Data), 1, t)
	if err != nil {
		return 0, fmt.Errorf("writing first snapshot: %w", err)
	}
	if err := (fsmSnapshot{&State{}}).Persist(sink); err != nil {
		return 0, fmt.Errorf("writing first snapshot: %w", err)
	}
	return 1, nil
}
