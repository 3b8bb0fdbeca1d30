package consensus

import (
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

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
