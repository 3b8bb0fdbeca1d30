package consensus

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
)

// recoveringFSM starts a new generation in the snapshot that a recovery writes, because entries that gateways have
// seen may be lost with the other nodes.
type recoveringFSM struct{ *fsm }

// Snapshot implements raft.FSM.
func (f *recoveringFSM) Snapshot() (raft.FSMSnapshot, error) {
	s := *f.applied.State()
	s.Generation = nextGeneration(s.Generation, time.Now())
	f.applied.publishState(&s)
	return f.fsm.Snapshot()
}

// ErrNothingToRecover means that a directory holds no state of a cluster.
var ErrNothingToRecover = errors.New("the folder holds no Raft state")

// RecoverNode makes a stopped node the only voter of its cluster, with everything in its log, for the permanent loss
// of a majority. All other nodes must then be wiped and added again: two nodes that are recovered separately form two
// clusters. It returns the state that the node will start from. Entries that no majority had confirmed count as
// committed from here on. With parts set, damaged files are first moved away and the log is cut before the first
// damaged entry, which loses the entries after it.
func RecoverNode(c Config, parts bool) (*State, error) {
	c, err := c.prepareConfig()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(c.Dir, logFile)); c.Dir == "" || err != nil {
		return nil, fmt.Errorf("recovering %q: %w", c.Dir, ErrNothingToRecover)
	}
	log := hcLogger{logger: c.Log}
	if parts {
		if err := salvageStorage(c.Dir, log); err != nil {
			return nil, fmt.Errorf("recovering %s: %w", c.Dir, err)
		}
	}
	var s raftStorage
	if err := s.openStores(c, log, nil); err != nil {
		return nil, err
	}
	defer s.closeStores()
	if err := verifyStorage(c.Dir, s.snaps, s.file); err != nil {
		return nil, fmt.Errorf("recovering %s: %w", c.Dir, err)
	}
	had, err := raft.HasExistingState(s.logs, s.stable, s.snaps)
	switch {
	case err != nil:
		return nil, fmt.Errorf("recovering %s: %w", c.Dir, err)
	case !had:
		return nil, fmt.Errorf("recovering %s: %w", c.Dir, ErrNothingToRecover)
	}
	addr := raft.ServerAddress(peerAddr(c.Peers, c.ID))
	if addr == "" {
		addr = raft.ServerAddress(c.Advertise)
	}
	if addr == "" {
		return nil, fmt.Errorf("recovering %s: raft.peers does not list this node, %s: list it with its own address", c.Dir, c.ID)
	}
	_, transport := raft.NewInmemTransport(addr)
	defer transport.Close()
	alone := raft.Configuration{Servers: []raft.Server{{ID: raft.ServerID(c.ID), Address: addr}}}
	state := newFSM(c.stateChecks(), c.Log)
	if err := raft.RecoverCluster(c.raftConfig(false, log), &recoveringFSM{state}, s.logs, s.stable, s.snaps, transport, alone); err != nil {
		return nil, fmt.Errorf("recovering %s: %w", c.Dir, err)
	}
	return state.applied.State(), nil
}
